/* The kernels that the model calls, for one instruction set. */
#ifndef @NAME@_KERNELS_H
#define @NAME@_KERNELS_H

#define TC_STANDALONE 1
@define_sized@
#include <math.h>
#include <string.h>

@guard@
#include "kernel.h"
@vocabulary@

#define TC_ISA_SUFFIX @isa@
#include "vocabulary.h"

@definitions@

#ifdef __GNUC__ /* what kernels need of the stack they shall not all need at once */
#define DECLARE(name) static __attribute__((noinline)) void name(const tc_call *, int64_t, int64_t)
@declarations@
#undef DECLARE
#endif

/* Kernels share headers: what this model does not call is not used, and compilers leave it out. */
#ifdef __GNUC__
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wunused-const-variable"
#pragma GCC diagnostic ignored "-Wunknown-pragmas"
#ifndef __clang__ /* which takes counts for negative without optimisation */
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#endif
#endif
#include "runtime/src/@alone@.h"
#include "runtime/src/rows.c"
@kernel_headers@
#ifdef __GNUC__
#pragma GCC diagnostic pop
#endif

#endif
