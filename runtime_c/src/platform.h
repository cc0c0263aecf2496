/* What the runtime asks of the operating system, which platform_posix.c and platform_windows.c answer. No other file
 * includes a header of a system. */
#ifndef TINYCOMP_PLATFORM_H
#define TINYCOMP_PLATFORM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef _WIN32
/* As wide as SRWLOCK and CONDITION_VARIABLE, which are one pointer each and begin with zeros. */
typedef struct tc_mutex {
  void *state;
} tc_mutex;
typedef struct tc_condition {
  void *state;
} tc_condition;
typedef void *tc_thread_handle;
#define TC_MUTEX_INITIALIZER {0}
#else
#include <pthread.h>
typedef pthread_mutex_t tc_mutex;
typedef pthread_cond_t tc_condition;
typedef pthread_t tc_thread_handle;
#define TC_MUTEX_INITIALIZER PTHREAD_MUTEX_INITIALIZER
#endif

/* ---- time ---- */

/* Seconds since some moment, on a clock that nobody sets. */
double tc_seconds_now(void);

/* ---- threads ---- */

void tc_mutex_create(tc_mutex *mutex);
void tc_mutex_destroy(tc_mutex *mutex);
void tc_mutex_lock(tc_mutex *mutex);
void tc_mutex_unlock(tc_mutex *mutex);

void tc_condition_create(tc_condition *condition);
void tc_condition_destroy(tc_condition *condition);
void tc_condition_wait(tc_condition *condition, tc_mutex *mutex);
void tc_condition_broadcast(tc_condition *condition);

typedef struct tc_thread {
  tc_thread_handle handle;
  void (*work)(void *argument);
  void *argument;
} tc_thread;

/* Starts a thread, which receives no signals, so that the caller's own threads go on receiving them; false if the
 * system refuses. The struct stays where it is until the thread is joined. */
bool tc_thread_start(tc_thread *thread, void (*work)(void *argument), void *argument);
void tc_thread_join(tc_thread *thread);
/* Lets another thread have the processor. */
void tc_thread_yield(void);

/* The processors that this process may use, at least 1. */
int32_t tc_processors(void);

#ifdef __aarch64__
/* Whether the system says that the processor multiplies 8-bit numbers four at a time. */
bool tc_stated_dotprod(void);
#endif

/* ---- processes ---- */

/* The number of this process: a forked child has another one. */
int64_t tc_process(void);
/* Calls `before` in front of every fork to come, and `after` behind it in both processes; nothing where none forks. */
void tc_watch_forks(void (*before)(void), void (*after)(void));

/* ---- memory ---- */

/* Wishes for large pages. */
void tc_prefer_large_pages(void *memory, size_t bytes);
/* Gives the pages that lie wholly within memory that maps a file back to the system, which reads them anew. */
void tc_give_back_pages(const void *memory, size_t bytes);
/* Bytes of a data cache as the system states them; 0 if it does not. */
int64_t tc_stated_cache_bytes(int32_t level);

/* ---- files ---- */

typedef enum tc_map_status { TC_MAP_DONE, TC_MAP_NO_FILE, TC_MAP_REFUSED } tc_map_status;

/* Maps a regular file that is not empty, for reading; the path is UTF-8. */
tc_map_status tc_map_file(const char *path, void **data, size_t *bytes);
void tc_unmap_file(void *data, size_t bytes);

#endif
