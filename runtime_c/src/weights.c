#include "weights.h"

#include <stdlib.h>
#include <string.h>

#include "platform.h"

enum { BUCKETS = 1024 };

struct tc_packed {
  tc_weights_key key;
  void *state;
  int64_t holders;
  tc_packed *next;
};

struct tc_weights {
  int64_t owners;
  int64_t bytes;
  tc_packed *buckets[BUCKETS];
};

/* One lock for all stores: it is held for moments only. A fork waits for them, so that a child never finds it taken. */
static tc_mutex changing = TC_MUTEX_INITIALIZER;
static bool forks_are_watched;

static void before_fork(void) { tc_mutex_lock(&changing); }
static void after_fork(void) { tc_mutex_unlock(&changing); }

static void watch_forks(void) {
  tc_mutex_lock(&changing);
  if (!forks_are_watched) {
    forks_are_watched = true;
    tc_watch_forks(before_fork, after_fork);
  }
  tc_mutex_unlock(&changing);
}

int32_t tc_weights_create(tc_weights **out, tc_error *error) {
  *out = calloc(1, sizeof(**out));
  watch_forks();
  if (!*out) {
    return tc_error_set(error, TC_NO_MEMORY, "no memory for a store of weights");
  }
  (*out)->owners = 1;
  return TC_OK;
}

void tc_weights_retain(tc_weights *weights) {
  tc_mutex_lock(&changing);
  weights->owners++;
  tc_mutex_unlock(&changing);
}

/* A program gives its weights back before it gives up its share of the store, so the last owner finds it empty. */
void tc_weights_destroy(tc_weights *weights) {
  if (!weights) {
    return;
  }
  tc_mutex_lock(&changing);
  const bool last = --weights->owners == 0;
  tc_mutex_unlock(&changing);
  if (last) {
    free(weights);
  }
}

int64_t tc_weights_bytes(tc_weights *weights) {
  tc_mutex_lock(&changing);
  const int64_t bytes = weights->bytes;
  tc_mutex_unlock(&changing);
  return bytes;
}

static tc_packed **bucket(tc_weights *weights, const tc_weights_key *key) {
  uint64_t hash = 14695981039346656037u; /* FNV-1a */
  for (size_t i = 0; i < sizeof(*key); i++) {
    hash = (hash ^ ((const unsigned char *)key)[i]) * 1099511628211u;
  }
  return &weights->buckets[hash % BUCKETS];
}

static tc_packed *held(tc_weights *weights, const tc_weights_key *key) {
  for (tc_packed *packed = *bucket(weights, key); packed; packed = packed->next) {
    if (!memcmp(&packed->key, key, sizeof(*key))) {
      packed->holders++;
      return packed;
    }
  }
  return NULL;
}

tc_packed *tc_weights_find(tc_weights *weights, const tc_weights_key *key) {
  tc_mutex_lock(&changing);
  tc_packed *found = held(weights, key);
  tc_mutex_unlock(&changing);
  return found;
}

tc_packed *tc_weights_add(tc_weights *weights, const tc_weights_key *key, void *state) {
  tc_packed *fresh = malloc(sizeof(*fresh));
  if (!fresh) {
    return NULL;
  }
  tc_mutex_lock(&changing);
  tc_packed *found = held(weights, key);
  if (!found) {
    tc_packed **first = bucket(weights, key);
    *fresh = (tc_packed){.key = *key, .state = state, .holders = 1, .next = *first};
    *first = fresh;
    weights->bytes += key->bytes;
  }
  tc_mutex_unlock(&changing);
  if (found) {
    tc_free(state);
    free(fresh);
    return found;
  }
  return fresh;
}

void tc_weights_release(tc_weights *weights, tc_packed *packed) {
  tc_mutex_lock(&changing);
  const bool last = --packed->holders == 0;
  if (last) {
    tc_packed **link = bucket(weights, &packed->key);
    while (*link != packed) {
      link = &(*link)->next;
    }
    *link = packed->next;
    weights->bytes -= packed->key.bytes;
  }
  tc_mutex_unlock(&changing);
  if (last) {
    tc_free(packed->state);
    free(packed);
  }
}

void *tc_packed_state(const tc_packed *packed) { return packed->state; }
