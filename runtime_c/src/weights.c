#include "weights.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

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
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void before_fork(void) { pthread_mutex_lock(&changing); }
static void after_fork(void) { pthread_mutex_unlock(&changing); }
static void watch_forks(void) { pthread_atfork(before_fork, after_fork, after_fork); }

int32_t tc_weights_create(tc_weights **out, tc_error *error) {
  *out = calloc(1, sizeof(**out));
  pthread_once(&once, watch_forks);
  if (!*out) {
    return tc_error_set(error, TC_NO_MEMORY, "no memory for a store of weights");
  }
  (*out)->owners = 1;
  return TC_OK;
}

void tc_weights_retain(tc_weights *weights) {
  pthread_mutex_lock(&changing);
  weights->owners++;
  pthread_mutex_unlock(&changing);
}

/* A program gives its weights back before it gives up its share of the store, so the last owner finds it empty. */
void tc_weights_destroy(tc_weights *weights) {
  if (!weights) {
    return;
  }
  pthread_mutex_lock(&changing);
  const bool last = --weights->owners == 0;
  pthread_mutex_unlock(&changing);
  if (last) {
    free(weights);
  }
}

int64_t tc_weights_bytes(tc_weights *weights) {
  pthread_mutex_lock(&changing);
  const int64_t bytes = weights->bytes;
  pthread_mutex_unlock(&changing);
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
  pthread_mutex_lock(&changing);
  tc_packed *found = held(weights, key);
  pthread_mutex_unlock(&changing);
  return found;
}

tc_packed *tc_weights_add(tc_weights *weights, const tc_weights_key *key, void *state) {
  tc_packed *fresh = malloc(sizeof(*fresh));
  if (!fresh) {
    return NULL;
  }
  pthread_mutex_lock(&changing);
  tc_packed *found = held(weights, key);
  if (!found) {
    tc_packed **first = bucket(weights, key);
    *fresh = (tc_packed){.key = *key, .state = state, .holders = 1, .next = *first};
    *first = fresh;
    weights->bytes += key->bytes;
  }
  pthread_mutex_unlock(&changing);
  if (found) {
    tc_free(state);
    free(fresh);
    return found;
  }
  return fresh;
}

void tc_weights_release(tc_weights *weights, tc_packed *packed) {
  pthread_mutex_lock(&changing);
  const bool last = --packed->holders == 0;
  if (last) {
    tc_packed **link = bucket(weights, &packed->key);
    while (*link != packed) {
      link = &(*link)->next;
    }
    *link = packed->next;
    weights->bytes -= packed->key.bytes;
  }
  pthread_mutex_unlock(&changing);
  if (last) {
    tc_free(packed->state);
    free(packed);
  }
}

void *tc_packed_state(const tc_packed *packed) { return packed->state; }
