/* nms_f32: non-maximum suppression. A unit is one segment, a class of an image: the boxes whose score counts are put on
 * a heap, and taken off it one by one until enough are kept; each is compared with all that are kept, a vector at a
 * time. Scratch: the heap, then the edges and areas of the boxes kept, padded to whole vectors with empty boxes at 0.
 */
#ifndef TINYCOMP_KERNELS_SELECT_NMS_F32_H
#define TINYCOMP_KERNELS_SELECT_NMS_F32_H

#include "vocabulary.h"

enum { NMS_POSITIONS, NMS_COUNTS, NMS_BOXES, NMS_SCORES, NMS_MOST, NMS_IOU, NMS_LEAST };

/* Low and high edges in both directions, then the area. */
enum { NMS_LOW0, NMS_LOW1, NMS_HIGH0, NMS_HIGH1, NMS_AREA, NMS_FIGURES };

/* Scores are skimmed in so many vectors at a time. */
enum { NMS_SKIM = 8 };

/* The floats between two rows of the figures of kept boxes. */
TC_INLINE int64_t nms_stride(const tc_nms_f32_params *p) { return tc_round_up(p->room, 16); }

static void TC_NAME(tc_nms_f32_prepare)(tc_prepare *prepare) {
  const tc_nms_f32_params *p = prepare->params;
  TC_REQUIRE(prepare, p->room >= 0 && p->room <= p->boxes, "there is room for more boxes than there are");
  TC_REQUIRE(prepare, p->boxes <= UINT32_MAX, "more boxes than positions of 32 bits");
  TC_REQUIRE(prepare, p->center == 0 || p->center == 1, "center must be 0 or 1");
  const int64_t segments = TC_PRODUCT(prepare, p->batch, p->classes);
  tc_touch(prepare, NMS_POSITIONS, TC_PRODUCT(prepare, segments, p->room), sizeof(int64_t));
  tc_counted(prepare, NMS_POSITIONS, NMS_COUNTS, 0);
  tc_touch(prepare, NMS_COUNTS, segments, sizeof(int64_t));
  tc_touch(prepare, NMS_BOXES, TC_PRODUCT(prepare, p->batch, p->boxes, 4), sizeof(float));
  const int64_t scores = TC_PRODUCT(prepare, segments, p->boxes);
  tc_touch(prepare, NMS_SCORES, scores, sizeof(float));
  tc_touch(prepare, NMS_MOST, 1, sizeof(int64_t));
  tc_touch(prepare, NMS_IOU, 1, sizeof(float));
  tc_touch(prepare, NMS_LEAST, 1, sizeof(float));
  if (tc_refused(prepare)) {
    return;
  }
  prepare->units = segments;
  prepare->scratch_bytes = tc_round_up(p->boxes * (int64_t)sizeof(uint64_t), TC_ALIGNMENT) +
                           nms_stride(p) * NMS_FIGURES * (int64_t)sizeof(float);
  prepare->cost = 8.0 * (double)scores;
  prepare->work.flops = (double)scores;
}

/* A number that is smaller the better a box is: its score, falling, then its position. */
TC_INLINE uint64_t nms_key(float score, int64_t position) {
  uint32_t bits;
  const float positive = score + 0.0f; /* -0 and 0 are equal */
  memcpy(&bits, &positive, sizeof(bits));
  bits = bits >> 31 ? bits : ~(bits | 0x80000000u);
  return (uint64_t)(score == score ? bits : UINT32_MAX) << 32 | (uint64_t)position;
}

static void nms_sink(uint64_t *heap, int64_t size, int64_t root) {
  const uint64_t moved = heap[root];
  for (int64_t child; (child = 2 * root + 1) < size; root = child) {
    child += child + 1 < size && heap[child + 1] < heap[child];
    if (moved <= heap[child]) {
      break;
    }
    heap[root] = heap[child];
  }
  heap[root] = moved;
}

/* Whether any of the next scores is above the least one. */
TC_INLINE bool nms_any_above(const float *scores, tc_vf least) {
  tc_vf above = tc_vf_set1(0.0f);
  for (int i = 0; i < NMS_SKIM; i++) {
    const tc_vm mask = tc_vf_lt(least, tc_vf_load(scores + i * TC_LANES));
    above = tc_vf_max(above, tc_vf_select(mask, tc_vf_set1(1.0f), tc_vf_set1(0.0f)));
  }
  return tc_vf_reduce_max(above) > 0.0f;
}

/* Puts the boxes that count on the heap, and returns how many they are. */
static int64_t nms_candidates(uint64_t *heap, const float *scores, int64_t boxes, const float *least) {
  enum { STEP = NMS_SKIM * TC_LANES };
  int64_t size = 0;
  for (int64_t begin = 0; begin < boxes; begin += STEP) {
    const int64_t end = tc_min(begin + STEP, boxes);
    if (least && end - begin == STEP && !nms_any_above(scores + begin, tc_vf_set1(*least))) {
      continue;
    }
    for (int64_t i = begin; i < end; i++) {
      heap[size] = nms_key(scores[i], i);
      size += !least || scores[i] > *least;
    }
  }
  for (int64_t i = size / 2; i-- > 0;) {
    nms_sink(heap, size, i);
  }
  return size;
}

/* As x86 does it, NaN in b comes through. */
TC_INLINE float nms_min(float a, float b) { return a < b || a != a ? a : b; }
TC_INLINE float nms_max(float a, float b) { return a > b || a != a ? a : b; }

/* The figures of a box. */
TC_INLINE void nms_figures(const float box[4], bool center, float figures[NMS_FIGURES]) {
  for (int i = 0; i < 2; i++) {
    const float first = box[i], second = box[i + 2];
    figures[NMS_LOW0 + i] = center ? first - second / 2 : nms_min(first, second);
    figures[NMS_HIGH0 + i] = center ? first + second / 2 : nms_max(first, second);
  }
  figures[NMS_AREA] = (figures[NMS_HIGH0] - figures[NMS_LOW0]) * (figures[NMS_HIGH1] - figures[NMS_LOW1]);
}

/* Whether a box overlaps any of those kept by more than the threshold. No product here may be fused with a sum: the
 * threshold would then be passed by other boxes than elsewhere. */
static bool nms_overlaps(const float box[NMS_FIGURES], const float *kept, int64_t stride, int64_t count, float iou) {
  const tc_vf zero = tc_vf_set1(0.0f), one = tc_vf_set1(1.0f), threshold = tc_vf_set1(iou);
  const tc_vf area = tc_vf_set1(box[NMS_AREA]);
  for (int64_t k = 0; k < count; k += TC_LANES) {
    tc_vf common[2];
    for (int i = 0; i < 2; i++) {
      const tc_vf low = tc_vf_max(tc_vf_set1(box[NMS_LOW0 + i]), tc_vf_load(kept + (NMS_LOW0 + i) * stride + k));
      const tc_vf high = tc_vf_min(tc_vf_set1(box[NMS_HIGH0 + i]), tc_vf_load(kept + (NMS_HIGH0 + i) * stride + k));
      common[i] = tc_vf_max(zero, tc_vf_sub(high, low));
    }
    const tc_vf both = tc_vf_mul_rounded(common[0], common[1]);
    const tc_vf joined = tc_vf_sub(tc_vf_add(tc_vf_load(kept + NMS_AREA * stride + k), area), both);
    tc_vf found = tc_vf_select(tc_vf_lt(threshold, tc_vf_div(both, joined)), one, zero);
    found = tc_vf_select(tc_vf_lt(zero, joined), found, zero);
    found = tc_vf_select(tc_vf_lt(zero, both), found, zero);
    if (tc_vf_reduce_max(found) > 0.0f) {
      return true;
    }
  }
  return false;
}

/* Adds a box to those kept; the first one of a vector makes the others in it empty boxes. */
TC_INLINE void nms_keep(const float box[NMS_FIGURES], float *kept, int64_t stride, int64_t count) {
  for (int i = 0; i < NMS_FIGURES; i++) {
    if (count % TC_LANES == 0) {
      tc_vf_store(kept + i * stride + count, tc_vf_set1(0.0f));
    }
    kept[i * stride + count] = box[i];
  }
}

/* One segment: writes the positions of the boxes kept, and returns how many they are. */
static int64_t nms_segment(const tc_call *call, int64_t segment, int64_t most, float iou, int64_t *positions) {
  const tc_nms_f32_params *p = call->params;
  const float *boxes = (const float *)call->operands[NMS_BOXES] + segment / p->classes * p->boxes * 4;
  const float *scores = (const float *)call->operands[NMS_SCORES] + segment * p->boxes;
  uint64_t *heap = call->scratch;
  float *kept = (float *)((char *)heap + tc_round_up(p->boxes * (int64_t)sizeof(uint64_t), TC_ALIGNMENT));
  const int64_t stride = nms_stride(p);
  int64_t size = most > 0 ? nms_candidates(heap, scores, p->boxes, call->operands[NMS_LEAST]) : 0, count = 0;
  while (size > 0 && count < most) {
    const int64_t best = (int64_t)(heap[0] & UINT32_MAX);
    heap[0] = heap[--size];
    nms_sink(heap, size, 0);
    float box[NMS_FIGURES];
    nms_figures(boxes + best * 4, p->center, box);
    if (!nms_overlaps(box, kept, stride, count, iou)) {
      nms_keep(box, kept, stride, count);
      positions[count++] = segment * p->boxes + best;
    }
  }
  return count;
}

static void TC_NAME(tc_nms_f32)(const tc_call *call, int64_t begin, int64_t end) {
  const tc_nms_f32_params *p = call->params;
  const int64_t *most = call->operands[NMS_MOST];
  const float *given = call->operands[NMS_IOU];
  const float iou = given ? *given : 0.0f;
  if (!(iou >= 0.0f && iou <= 1.0f)) {
    tc_fail(call, "iou_threshold is not between 0 and 1");
    return;
  }
  for (int64_t segment = begin; segment < end; segment++) {
    int64_t *positions = (int64_t *)call->operands[NMS_POSITIONS] + segment * p->room;
    const int64_t room = most ? tc_min(*most, p->room) : 0;
    ((int64_t *)call->operands[NMS_COUNTS])[segment] = nms_segment(call, segment, room, iou, positions);
  }
}

#endif
