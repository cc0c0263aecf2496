/* Which instruction sets the processor of this machine has. */
#ifndef TINYCOMP_CPU_H
#define TINYCOMP_CPU_H

#include <stdbool.h>

#ifdef TC_STANDALONE /* projects are for what their compiler is told of */
#ifdef __AVXVNNI__
static inline bool tc_cpu_has_avxvnni(void) { return true; }
#else
static inline bool tc_cpu_has_avxvnni(void) { return false; }
#endif
#ifdef __ARM_FEATURE_DOTPROD
static inline bool tc_cpu_has_dotprod(void) { return true; }
#else
static inline bool tc_cpu_has_dotprod(void) { return false; }
#endif
#else
bool tc_cpu_has_scalar(void);
/* Only where it is emulated. */
bool tc_cpu_has_helium(void);
bool tc_cpu_has_neon(void);
bool tc_cpu_has_avx2(void);
bool tc_cpu_has_avx512(void);
/* Whether there are products of quads of bytes for vectors of AVX2. */
bool tc_cpu_has_avxvnni(void);
/* Whether NEON has them. */
bool tc_cpu_has_dotprod(void);
/* Whether AVX-512 multiplies quads of bytes. */
bool tc_cpu_has_avx512vnni(void);
/* Whether it multiplies pairs of bfloat16. */
bool tc_cpu_has_avx512bf16(void);
#endif

#endif
