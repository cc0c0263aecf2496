/* What the arithmetic of a core can do. */
#include "clock.h"
#include "isa.h"

enum { MEASUREMENTS = 50, ROUNDS = 50000 }; /* about 100 microseconds each: some of them are disturbed by nothing */

int32_t tc_peak_flops(const char *isa, double *flops_per_second, tc_error *error) {
  const tc_isa *chosen = tc_isa_demand(isa, error);
  if (!chosen) {
    return error->code;
  }
  *flops_per_second = 0;
  for (int i = 0; i < MEASUREMENTS; i++) {
    float sum[2] = {0.5f, 1.0f}; /* the chains stay between 0 and 64 */
    const double start = tc_seconds_now();
    const double operations = chosen->multiply_add(ROUNDS, sum);
    const double rate = operations / (tc_seconds_now() - start);
    *flops_per_second = rate > *flops_per_second ? rate : *flops_per_second;
  }
  return TC_OK;
}

int32_t tc_peak_int8(const char *isa, double *operations_per_second, tc_error *error) {
  const tc_isa *chosen = tc_isa_demand(isa, error);
  if (!chosen) {
    return error->code;
  }
  *operations_per_second = 0;
  for (int i = 0; i < MEASUREMENTS; i++) {
    int32_t sum = 0x01020304;
    const double start = tc_seconds_now();
    const double operations = chosen->multiply_add_int8(ROUNDS, &sum);
    const double rate = operations / (tc_seconds_now() - start);
    *operations_per_second = rate > *operations_per_second ? rate : *operations_per_second;
  }
  return TC_OK;
}
