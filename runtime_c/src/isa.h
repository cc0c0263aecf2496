/* The instruction sets that this build knows. */
#ifndef TINYCOMP_ISA_H
#define TINYCOMP_ISA_H

#include "kernel.h"

/* One row per instruction set, worst first; tc_cpu_has_<name>() in cpu.h tells whether it runs here. A build for some
 * of them only defines the list itself. */
#if defined(TC_ISA_LIST)
#elif defined(__x86_64__)
#define TC_ISA_LIST TC_ISA(scalar) TC_ISA(helium) TC_ISA(neon) TC_ISA(avx2) TC_ISA(avx512)
#elif defined(__aarch64__)
#define TC_ISA_LIST TC_ISA(scalar) TC_ISA(helium) TC_ISA(neon)
#else
#define TC_ISA_LIST TC_ISA(scalar) TC_ISA(helium)
#endif

typedef struct tc_isa {
  const char *name;
  bool (*runs_here)(void);
  const tc_kernel *kernels; /* indexed by enum tc_kernel_id */
  tc_isa_shape (*shape)(void);
  /* Does independent multiply-adds, as many rounds of them as asked for, and returns how many operations that were;
   * the sum is written so that nothing can be left out. */
  double (*multiply_add)(int64_t rounds, float *sum);
  double (*multiply_add_int8)(int64_t rounds, int32_t *sum);
  /* Reads memory as fast as one thread can. */
  int32_t (*read_memory)(const void *memory, int64_t bytes);
} tc_isa;

#define TC_ISA(name)                                                 \
  extern const tc_kernel tc_kernels__##name[TC_KERNEL_COUNT];        \
  tc_isa_shape tc_shape__##name(void);                               \
  double tc_multiply_add__##name(int64_t rounds, float *sum);        \
  double tc_multiply_add_int8__##name(int64_t rounds, int32_t *sum); \
  int32_t tc_read_memory__##name(const void *memory, int64_t bytes);
TC_ISA_LIST
#undef TC_ISA

/* The named instruction set; for NULL the one in TINYCOMP_ISA, or else the best. NULL if it cannot run here. */
const tc_isa *tc_isa_find(const char *name);

/* Likewise, with a message where it cannot run here. */
const tc_isa *tc_isa_demand(const char *name, tc_error *error);

/* Likewise, or one whose weights can be packed here although its kernels do not run. */
const tc_isa *tc_isa_demand_packing(const char *name, tc_error *error);

#endif
