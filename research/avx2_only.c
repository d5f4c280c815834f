// Makes a process see a CPU without AVX-512 and AMX: its CPUID instruction faults, and is answered without those bits.
// OpenVINO can be held to AVX2 by an environment variable, ONNX Runtime cannot; so both are held to it by this.
//
//   gcc -O1 -shared -fPIC research/avx2_only.c -o avx2_only.so -ldl
//   LD_PRELOAD=$PWD/avx2_only.so tune bench squeezenet.tuned --against onnxruntime,openvino
//
// Linux on an Intel CPU that can let CPUID fault (arch_prctl ARCH_SET_CPUID), as virtual machines under KVM have it too.
#define _GNU_SOURCE
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include <pthread.h>
#include <dlfcn.h>
#define ARCH_SET_CPUID 0x1012
static void faulting(int on){ syscall(SYS_arch_prctl, ARCH_SET_CPUID, (unsigned long)!on); }
typedef int (*Sigaction)(int, const struct sigaction*, struct sigaction*);
typedef void (*Plain)(int);
typedef Plain (*Signal)(int, Plain);
// Nobody else may answer SIGSEGV.
int sigaction(int sig, const struct sigaction* act, struct sigaction* old) {
  return ((Sigaction)dlsym(RTLD_NEXT, "sigaction"))(sig, sig == SIGSEGV ? 0 : act, old);
}
Plain signal(int sig, Plain act) { return sig == SIGSEGV ? SIG_DFL : ((Signal)dlsym(RTLD_NEXT, "signal"))(sig, act); }
static void handler(int sig, siginfo_t* info, void* context){
  ucontext_t* u = context; greg_t* r = u->uc_mcontext.gregs;
  unsigned char* ip = (unsigned char*)r[REG_RIP];
  if (ip[0] != 0x0f || ip[1] != 0xa2) _exit(139);
  unsigned a = r[REG_RAX], c = r[REG_RCX], b, d, leaf = a, sub = c;
  faulting(0);
  __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
  faulting(1);
  if (leaf == 7 && sub == 0) {
    b &= ~((1u<<16)|(1u<<17)|(1u<<21)|(1u<<26)|(1u<<27)|(1u<<28)|(1u<<30)|(1u<<31));
    c &= ~((1u<<1)|(1u<<6)|(1u<<11)|(1u<<12)|(1u<<14));
    d &= ~((1u<<2)|(1u<<3)|(1u<<8)|(1u<<22)|(1u<<23)|(1u<<24)|(1u<<25));
  }
  if (leaf == 7 && sub == 1) a &= ~((1u<<5)|(1u<<21));  // AVX512_BF16, AMX_FP16
  r[REG_RAX]=a; r[REG_RBX]=b; r[REG_RCX]=c; r[REG_RDX]=d; r[REG_RIP]+=2;
}
__attribute__((constructor)) static void start(void){
  struct sigaction s = {0}; s.sa_sigaction = handler; s.sa_flags = SA_SIGINFO | SA_NODEFER;
  ((Sigaction)dlsym(RTLD_NEXT, "sigaction"))(SIGSEGV, &s, 0);
  if (syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0ul) != 0) perror("CPUID faulting");
}
