/* The instruction sets of this build, and which of them run here. */
#include "isa.h"

#include <stdlib.h>
#include <string.h>

#include "cpu.h"

#define TC_ISA(name)             \
  {#name,                        \
   tc_cpu_has_##name,            \
   tc_kernels__##name,           \
   tc_shape__##name,             \
   tc_multiply_add__##name,      \
   tc_multiply_add_int8__##name, \
   tc_read_memory__##name},
static const tc_isa isas[] = {TC_ISA_LIST};
#undef TC_ISA

enum { ISA_COUNT = sizeof(isas) / sizeof(isas[0]) };

static const tc_isa *isa_at(int32_t index) {
  for (int i = 0; i < ISA_COUNT; i++) {
    if (isas[i].runs_here() && index-- == 0) {
      return &isas[i];
    }
  }
  return NULL;
}

const char *tc_isa_name(int32_t index) {
  const tc_isa *isa = isa_at(index);
  return isa ? isa->name : NULL;
}

const tc_isa *tc_isa_find(const char *name) {
  if (!name || !*name) {
    name = getenv("TINYCOMP_ISA");
  }
  const tc_isa *best = NULL;
  const bool any = !name || !*name;
  for (int32_t i = 0; isa_at(i); i++) {
    if (any || strcmp(isa_at(i)->name, name) == 0) {
      best = isa_at(i);
    }
  }
  return best;
}

const char *tc_isa_default(void) {
  const tc_isa *isa = tc_isa_find(NULL);
  return isa ? isa->name : NULL;
}

/* The named one if this build has nothing of it but the packing of weights; else NULL. */
static const tc_isa *packing_only(const char *name) {
  for (int i = 0; name && i < ISA_COUNT; i++) {
    if (strcmp(isas[i].name, name) == 0 && !isas[i].kernels[0].run) {
      return &isas[i];
    }
  }
  return NULL;
}

int32_t tc_isa_packs(const char *name) { return packing_only(name) || (name && *name && tc_isa_find(name)); }

const tc_isa *tc_isa_demand_packing(const char *name, tc_error *error) {
  const tc_isa *packing = packing_only(name);
  return packing ? packing : tc_isa_demand(name, error);
}

/* Whether products of bfloat16 take less time than those of floats. Intel's processors with AVX512_BF16 that were
 * measured start a quarter as many, so that they take twice as long; AMD's start as many, of twice the numbers. */
static bool gains_by_pairs(void) {
#if defined(__x86_64__)
  return __builtin_cpu_is("amd") != 0;
#else
  return false;
#endif
}

int32_t tc_isa_describe(const char *name, tc_isa_shape *shape) {
  const tc_isa *isa = tc_isa_find(name);
  if (isa) {
    *shape = isa->shape();
    shape->pairs = shape->pairs && gains_by_pairs();
  }
  return isa != NULL;
}

const tc_isa *tc_isa_demand(const char *name, tc_error *error) {
  const tc_isa *found = tc_isa_find(name);
  if (!found) {
    const char *wanted = name && *name ? name : getenv("TINYCOMP_ISA");
    tc_error_set(error, TC_UNSUPPORTED, "this machine cannot run the instruction set \"%s\"", wanted ? wanted : "");
  }
  return found;
}
