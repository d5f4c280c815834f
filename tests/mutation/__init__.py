"""Wrong kernels on purpose: how many of them does the check of measured kernels reject?"""
