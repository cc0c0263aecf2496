/* What those who pack trees and those who lead rows down them have in common. */
#ifndef TINYCOMP_KERNELS_TREES_NODE_H
#define TINYCOMP_KERNELS_TREES_NODE_H

#include "vocabulary.h"

enum { TREES_Y, TREES_X, TREES_NODES, TREES_LEAVES, TREES_ROOTS, TREES_WEIGHTS, TREES_BASE };

enum { TREES_LANES = 8, TREES_BLOCK = 64, TREES_STRIDE = 4 };

/* The feature of a node that sends NaN to its first child has this bit in the table. */
enum { TREES_TRACKS = 1 << 30 };

/* Children are where the value is at most the threshold, and where it is not; a leaf is its own child. */
typedef struct trees_node_f32 {
  float threshold;
  int32_t feature, child[2];
} trees_node_f32;

typedef struct trees_node_f64 {
  double threshold;
  int32_t feature, child[2], padding;
} trees_node_f64;

#endif
