#include "formulas.h"

#include <stdlib.h>

static int64_t floor_divide(int64_t a, int64_t b) {
  const int64_t quotient = a / b;
  return quotient - (a % b != 0 && a < 0);
}

/* The value of one formula; false if it is beyond all memory. A division by 0 has been refused. */
static bool compute(const tc_formula *formula, const int64_t *values, int64_t *result) {
  const int64_t *at = formula->operands;
  switch (formula->operation) {
    case TC_FORMULA_CONSTANT:
      *result = at[0];
      return true;
    case TC_FORMULA_ADD:
      *result = values[at[0]] + values[at[1]]; /* neither is beyond 2^48 */
      return true;
    case TC_FORMULA_MULTIPLY:
      return !__builtin_mul_overflow(values[at[0]], values[at[1]], result);
    case TC_FORMULA_DIVIDE:
      *result = floor_divide(values[at[0]], values[at[1]]);
      return true;
    case TC_FORMULA_MIN:
      *result = tc_min(values[at[0]], values[at[1]]);
      return true;
    case TC_FORMULA_MAX:
      *result = tc_max(values[at[0]], values[at[1]]);
      return true;
    case TC_FORMULA_CONDITION:
      *result = values[at[0]];
      return true;
    default: /* TC_FORMULA_IF_ZERO */
      *result = values[at[0]] == 0 ? values[at[1]] : values[at[2]];
      return true;
  }
}

bool tc_formulas_stage(tc_formulas *formulas, int64_t shown) {
  free(formulas->stages); /* of an attempt that failed */
  formulas->stages = calloc((size_t)tc_formulas_values(formulas), sizeof(int32_t));
  if (!formulas->stages) {
    return false;
  }
  for (int64_t i = shown; i < formulas->symbol_count; i++) {
    formulas->stages[i] = (int32_t)(1 + i - shown);
  }
  for (int64_t i = 0; i < formulas->count; i++) {
    int32_t *stage = &formulas->stages[formulas->symbol_count + i];
    for (int k = 0; k < tc_formula_operands(formulas->items[i].operation); k++) {
      const int32_t other = formulas->stages[formulas->items[i].operands[k]];
      *stage = other > *stage ? other : *stage;
    }
  }
  return true;
}

int32_t tc_formulas_evaluate(const tc_formulas *formulas, int64_t *values, int32_t stage, tc_error *error) {
  for (int64_t i = 0; i < formulas->symbol_count; i++) {
    if (values[i] < -TC_MAX_BYTES || values[i] > TC_MAX_BYTES) { /* elements of tensors may be negative */
      if (error) {
        return tc_error_set(error, TC_INVALID, "a size of %lld", (long long)values[i]);
      }
      values[i] = 0;
    }
  }
  for (int64_t i = 0; i < formulas->count; i++) {
    int64_t *value = &values[formulas->symbol_count + i];
    const tc_formula *formula = &formulas->items[i];
    const bool has_value = formula->operation != TC_FORMULA_DIVIDE || values[formula->operands[1]] > 0;
    if (!has_value && error) {
      return tc_error_set(error, TC_INVALID, "a size that divides another is 0");
    }
    const bool fits = has_value && compute(formula, values, value) && *value <= TC_MAX_BYTES && *value >= -TC_MAX_BYTES;
    if (!fits && error) {
      return tc_error_set(error, TC_TOO_LARGE, "the sizes are too large for memory");
    }
    *value = fits ? *value : 0;
    if (error && formulas->items[i].operation == TC_FORMULA_CONDITION && *value != 0 &&
        tc_formulas_stage_of(formulas, formulas->symbol_count + i) <= stage) {
      return tc_error_set(error, TC_INVALID, "condition %lld", (long long)formulas->items[i].operands[1]);
    }
  }
  return TC_OK;
}
