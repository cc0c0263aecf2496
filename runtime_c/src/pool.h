/* A fork/join pool of threads. */
#ifndef TINYCOMP_POOL_H
#define TINYCOMP_POOL_H

#include <stdbool.h>

#include "tinycomp.h"

typedef void (*tc_job)(void *argument, int thread);

/* Claims the pool for the calling thread; false if another thread has it or if it did not survive a fork. */
bool tc_pool_enter(tc_pool *pool);
void tc_pool_leave(tc_pool *pool);

/* Runs the job on the calling thread, as thread 0, and on those threads of an entered pool that come in time; returns
 * when all of them are done. So the job must hand out its work piece by piece, and may find none left. */
void tc_pool_run(tc_pool *pool, tc_job job, void *argument);

#endif
