/* Packed weights that several programs share: what differs between the programs of one model for different batch sizes
 * is everything but these. */
#ifndef TINYCOMP_WEIGHTS_H
#define TINYCOMP_WEIGHTS_H

#include "isa.h"
#include "kernel.h"

/* What packed weights depend on. Compared byte by byte, so that it must be zeroed before it is filled. */
typedef struct tc_weights_key {
  const tc_isa *isa;
  const void *constants[TC_MAX_OPERANDS];
  int64_t shared[TC_MAX_SHARED];
  int64_t bytes;
  int64_t kernel;
} tc_weights_key;

typedef struct tc_packed tc_packed;

/* Adds an owner, who will call tc_weights_destroy. */
void tc_weights_retain(tc_weights *weights);

/* The packed weights for a key, held for the caller; NULL if nobody has packed them. */
tc_packed *tc_weights_find(tc_weights *weights, const tc_weights_key *key);

/* Adds freshly packed weights, which now belong to the store, and holds them for the caller; returns those of another
 * thread that was faster. NULL if there is no memory, and then the state still belongs to the caller. */
tc_packed *tc_weights_add(tc_weights *weights, const tc_weights_key *key, void *state);

/* Gives packed weights back; they are freed when nobody holds them. */
void tc_weights_release(tc_weights *weights, tc_packed *packed);

void *tc_packed_state(const tc_packed *packed);

#endif
