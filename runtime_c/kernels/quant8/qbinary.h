/* qbinary: the sum, difference or product of two tensors of 8-bit numbers, as its definition in float32 says step by
 * step. Units are pieces of rows. State: the collapsed walk. */
#ifndef TINYCOMP_KERNELS_QUANT8_QBINARY_H
#define TINYCOMP_KERNELS_QUANT8_QBINARY_H

#include "vocabulary.h"

#include "../copy/copy.h"
#include "requantize.h"

enum { QBINARY_Y, QBINARY_A, QBINARY_B };

enum { QBINARY_PIECE = 1024 };

static tc_rows qbinary_rows(const tc_qbinary_params *p) {
  tc_nd nd = tc_nd_make(TC_EIGHT(p, size));
  tc_nd_add(&nd, TC_EIGHT(p, y_stride));
  tc_nd_add(&nd, TC_EIGHT(p, a_stride));
  tc_nd_add(&nd, TC_EIGHT(p, b_stride));
  tc_nd_collapse(&nd);
  return tc_rows_make(&nd, QBINARY_PIECE);
}

static void TC_NAME(tc_qbinary_prepare)(tc_prepare *prepare) {
  const tc_qbinary_params *p = prepare->params;
  TC_REQUIRE(prepare, p->op >= TC_BINARY_ADD && p->op <= TC_BINARY_MUL, "8-bit numbers have no operation %lld",
             (long long)p->op);
  q8_check_bytes(prepare, TC_TYPE_U8, p->a_zero_point, 0, 255);
  q8_check_bytes(prepare, TC_TYPE_U8, p->b_zero_point, 0, 255);
  q8_check_bytes(prepare, TC_TYPE_U8, p->y_zero_point, p->low, p->high);
  tc_nd_touch(prepare, QBINARY_Y, TC_EIGHT(p, size), TC_EIGHT(p, y_stride), 1);
  tc_nd_touch(prepare, QBINARY_A, TC_EIGHT(p, size), TC_EIGHT(p, a_stride), 1);
  tc_nd_touch(prepare, QBINARY_B, TC_EIGHT(p, size), TC_EIGHT(p, b_stride), 1);
  tc_nd_require_forward(prepare, TC_EIGHT(p, size), TC_EIGHT(p, y_stride));
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = qbinary_rows(p).units;
  const double count = (double)tc_product(prepare, TC_EIGHT(p, size), TC_ND_DIMS);
  prepare->cost = 4.0 * count;
  prepare->work.flops = 6.0 * count; /* two operands become floats, one operation, and the way back */
  tc_state_is_rows(prepare);
  prepare->scratch_bytes = 3 * QBINARY_PIECE; /* one piece of each operand, side by side */
}

static void TC_NAME(tc_qbinary_pack)(const tc_prepare *prepare, void *state) {
  *(tc_rows *)state = qbinary_rows(prepare->params);
}

/* One operand along a row: its numbers side by side, or one for all of them. */
typedef struct qbinary_operand {
  const uint8_t *x;
  int64_t step; /* 0 or 1 */
  int32_t zero_point;
  float scale;
} qbinary_operand;

/* The numbers of a row side by side or all the same, in `copy` if they lie otherwise. */
static qbinary_operand qbinary_read(const uint8_t *x, int64_t step, int64_t count, int64_t zero_point, float scale,
                                    uint8_t *copy) {
  qbinary_operand operand = {x, step, (int32_t)zero_point, scale};
  if (step != 0 && step != 1) {
    copy_strided_tc_any8(copy, 1, x, step, count);
    operand.x = copy;
    operand.step = 1;
  }
  return operand;
}

TC_INLINE tc_vi q8_load_bytes_up_to(const uint8_t *p, int64_t count) {
  uint8_t rest[TC_LANES] = {0};
  if (count >= TC_LANES) {
    return tc_vi_load_bytes(p);
  }
  memcpy(rest, p, (size_t)count);
  return tc_vi_load_bytes(rest);
}

TC_INLINE tc_vf qbinary_dequantize(const qbinary_operand *operand, int64_t at, int64_t count) {
  const tc_vi x = operand->step ? q8_load_bytes_up_to(operand->x + at, count) : tc_vi_set1(*operand->x);
  const tc_vf value = tc_vi_to_float(tc_vi_add(x, tc_vi_set1(-operand->zero_point)));
  return tc_vf_mul_rounded(value, tc_vf_set1(operand->scale));
}

/* The result at `at` of two operands of which `count` numbers are left. */
TC_INLINE tc_vf qbinary_vector(const int op, const qbinary_operand *a, const qbinary_operand *b, tc_vf scale,
                               int64_t at, int64_t count) {
  const tc_vf u = qbinary_dequantize(a, at, count), v = qbinary_dequantize(b, at, count);
  const tc_vf r = op == TC_BINARY_ADD ? tc_vf_add(u, v) : op == TC_BINARY_SUB ? tc_vf_sub(u, v) : tc_vf_mul(u, v);
  return tc_vf_div(r, scale);
}

TC_INLINE void qbinary_row(const int op, const tc_qbinary_params *p, const qbinary_operand *a, const qbinary_operand *b,
                           uint8_t *y, int64_t count) {
  const q8_bytes bytes = q8_bytes_make(p->y_zero_point, p->low, p->high);
#if TC_PACK4
  const tc_pack4 pack = tc_pack4_make((int32_t)p->y_zero_point, (int32_t)p->low);
#endif
  const tc_vf scale = tc_vf_set1(p->y_scale);
  int64_t i = 0;
  for (; i + 4 * TC_LANES <= count; i += 4 * TC_LANES) {
    tc_vf v[4];
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
      v[k] = qbinary_vector(op, a, b, scale, i + k * TC_LANES, TC_LANES);
    }
#if TC_PACK4
    /* What is too low or NaN becomes the lowest integer here, and is clamped as a byte. */
    const tc_vi whole[4] = {tc_vf_to_int(tc_vf_min(bytes.high, v[0])), tc_vf_to_int(tc_vf_min(bytes.high, v[1])),
                            tc_vf_to_int(tc_vf_min(bytes.high, v[2])), tc_vf_to_int(tc_vf_min(bytes.high, v[3]))};
    tc_vi_store_pack4(y + i, whole, &pack);
#else
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
      q8_store(&bytes, v[k], TC_LANES, y + i + k * TC_LANES);
    }
#endif
  }
  for (; i < count; i += TC_LANES) {
    q8_store(&bytes, qbinary_vector(op, a, b, scale, i, count - i), count - i, y + i);
  }
}

/* A bit for every operation that is called, for projects that have no others. */
#ifndef QBINARY_OPS
#define QBINARY_OPS (1 << TC_BINARY_ADD | 1 << TC_BINARY_SUB | 1 << TC_BINARY_MUL)
#endif

static void qbinary_any_row(const tc_qbinary_params *p, const qbinary_operand *a, const qbinary_operand *b, uint8_t *y,
                            int64_t count) {
  if ((QBINARY_OPS & 1 << TC_BINARY_ADD) && p->op == TC_BINARY_ADD) {
    qbinary_row(TC_BINARY_ADD, p, a, b, y, count);
  } else if ((QBINARY_OPS & 1 << TC_BINARY_SUB) && p->op == TC_BINARY_SUB) {
    qbinary_row(TC_BINARY_SUB, p, a, b, y, count);
  } else if (QBINARY_OPS & 1 << TC_BINARY_MUL) {
    qbinary_row(TC_BINARY_MUL, p, a, b, y, count);
  }
}

static void TC_NAME(tc_qbinary)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_qbinary_params *p = call->params;
  const uint8_t *a = call->operands[QBINARY_A], *b = call->operands[QBINARY_B];
  uint8_t *y = call->operands[QBINARY_Y], (*copies)[QBINARY_PIECE] = call->scratch;
  tc_rows_walk walk = tc_rows_seek(call->state, begin);
  for (int64_t unit = begin; unit < end; unit++) {
    const int64_t *at = walk.at, *step = walk.step, count = walk.count;
    const qbinary_operand left =
        qbinary_read(a + at[QBINARY_A], step[QBINARY_A], count, p->a_zero_point, p->a_scale, copies[QBINARY_A]);
    const qbinary_operand right =
        qbinary_read(b + at[QBINARY_B], step[QBINARY_B], count, p->b_zero_point, p->b_scale, copies[QBINARY_B]);
    if (step[QBINARY_Y] == 1) {
      qbinary_any_row(p, &left, &right, y + at[QBINARY_Y], count);
    } else {
      qbinary_any_row(p, &left, &right, copies[QBINARY_Y], count);
      copy_strided_tc_any8(y + at[QBINARY_Y], step[QBINARY_Y], copies[QBINARY_Y], 1, count);
    }
    tc_rows_next(&walk);
  }
}

#endif
