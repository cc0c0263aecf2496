/* A fork/join pool of threads. */
#ifndef TINYCOMP_POOL_H
#define TINYCOMP_POOL_H

#include <stdbool.h>

#include "tinycomp.h"

typedef void (*tc_job)(void *argument, int thread);

/* Claims the pool for the calling thread; false if another thread has it or if it did not survive a fork. */
bool tc_pool_enter(tc_pool *pool);
void tc_pool_leave(tc_pool *pool);

/* Runs the job on every thread of an entered pool, the caller being thread 0, and waits for all of them. */
void tc_pool_run(tc_pool *pool, tc_job job, void *argument);

#endif
