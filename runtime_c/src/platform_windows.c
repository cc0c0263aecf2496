#ifdef _WIN32
#define _CRT_RAND_S
#define WIN32_LEAN_AND_MEAN
#include <process.h>
#include <stdlib.h>
#include <string.h>
#include <windows.h>

#include "kernel.h"
#include "platform.h"

_Static_assert(sizeof(tc_mutex) == sizeof(SRWLOCK), "a tc_mutex is an SRWLOCK");
_Static_assert(sizeof(tc_condition) == sizeof(CONDITION_VARIABLE), "a tc_condition is a CONDITION_VARIABLE");

double tc_seconds_now(void) {
  LARGE_INTEGER frequency, now;
  QueryPerformanceFrequency(&frequency);
  QueryPerformanceCounter(&now);
  return (double)now.QuadPart / (double)frequency.QuadPart;
}

void tc_mutex_create(tc_mutex *mutex) { InitializeSRWLock((SRWLOCK *)mutex); }
void tc_mutex_destroy(tc_mutex *mutex) { (void)mutex; }
void tc_mutex_lock(tc_mutex *mutex) { AcquireSRWLockExclusive((SRWLOCK *)mutex); }
void tc_mutex_unlock(tc_mutex *mutex) { ReleaseSRWLockExclusive((SRWLOCK *)mutex); }

void tc_condition_create(tc_condition *condition) { InitializeConditionVariable((CONDITION_VARIABLE *)condition); }
void tc_condition_destroy(tc_condition *condition) { (void)condition; }
void tc_condition_wait(tc_condition *condition, tc_mutex *mutex) {
  SleepConditionVariableSRW((CONDITION_VARIABLE *)condition, (SRWLOCK *)mutex, INFINITE, 0);
}
void tc_condition_broadcast(tc_condition *condition) { WakeAllConditionVariable((CONDITION_VARIABLE *)condition); }

static unsigned __stdcall run_thread(void *argument) {
  const tc_thread *thread = argument;
  thread->work(thread->argument);
  return 0;
}

bool tc_thread_start(tc_thread *thread, void (*work)(void *argument), void *argument) {
  thread->work = work;
  thread->argument = argument;
  thread->handle = (void *)_beginthreadex(NULL, 0, run_thread, thread, 0, NULL);
  return thread->handle != NULL;
}

void tc_thread_join(tc_thread *thread) {
  WaitForSingleObject(thread->handle, INFINITE);
  CloseHandle(thread->handle);
}

void tc_thread_yield(void) { SwitchToThread(); }

int32_t tc_processors(void) {
  DWORD_PTR mine, all;
  return GetProcessAffinityMask(GetCurrentProcess(), &mine, &all) && mine ? __builtin_popcountll(mine) : 1;
}

#if defined(__aarch64__)
bool tc_stated_dotprod(void) { return IsProcessorFeaturePresent(PF_ARM_V82_DP_INSTRUCTIONS_AVAILABLE); }
#endif

int64_t tc_process(void) { return GetCurrentProcessId(); }

void tc_watch_forks(void (*before)(void), void (*after)(void)) {
  (void)before;
  (void)after;
}

void tc_prefer_large_pages(void *memory, size_t bytes) {
  (void)memory;
  (void)bytes;
}

/* To unlock what is not locked takes it out of the working set. */
void tc_give_back_pages(const void *memory, size_t bytes) {
  SYSTEM_INFO info;
  GetSystemInfo(&info);
  const uintptr_t page = info.dwPageSize, start = (uintptr_t)memory;
  const uintptr_t first = (start + page - 1) / page * page, last = (start + bytes) / page * page;
  if (first < last) {
    (void)VirtualUnlock((void *)first, last - first);
  }
}

int64_t tc_stated_cache_bytes(int32_t level) {
  SYSTEM_LOGICAL_PROCESSOR_INFORMATION *parts = NULL;
  DWORD bytes = 0;
  int64_t found = 0;
  if (!GetLogicalProcessorInformation(NULL, &bytes) && GetLastError() == ERROR_INSUFFICIENT_BUFFER) {
    parts = malloc(bytes);
  }
  if (parts && GetLogicalProcessorInformation(parts, &bytes)) {
    for (size_t i = 0; i < bytes / sizeof(*parts) && !found; i++) {
      const bool fits = parts[i].Relationship == RelationCache && parts[i].Cache.Level == level &&
                        parts[i].Cache.Type != CacheInstruction;
      found = fits ? (int64_t)parts[i].Cache.Size : 0;
    }
  }
  free(parts);
  return found;
}

bool tc_random_bytes(void *to, size_t bytes) {
  for (size_t done = 0; done < bytes;) {
    unsigned number;
    if (rand_s(&number)) {
      return false;
    }
    const size_t some = bytes - done < sizeof(number) ? bytes - done : sizeof(number);
    memcpy((char *)to + done, &number, some);
    done += some;
  }
  return true;
}

/* Opens a file that others may read, replace and remove meanwhile; INVALID_HANDLE_VALUE if that fails. */
static HANDLE open_file(const char *path) {
  const int units = MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, NULL, 0);
  wchar_t *wide = units ? calloc((size_t)units, sizeof(*wide)) : NULL;
  HANDLE file = INVALID_HANDLE_VALUE;
  if (wide && MultiByteToWideChar(CP_UTF8, MB_ERR_INVALID_CHARS, path, -1, wide, units)) {
    file = CreateFileW(wide, GENERIC_READ, FILE_SHARE_READ | FILE_SHARE_DELETE, NULL, OPEN_EXISTING,
                       FILE_ATTRIBUTE_NORMAL, NULL);
  }
  free(wide);
  return file;
}

tc_map_status tc_map_file(const char *path, void **data, size_t *bytes) {
  const HANDLE file = open_file(path);
  if (file == INVALID_HANDLE_VALUE) {
    return TC_MAP_NO_FILE;
  }
  LARGE_INTEGER size;
  tc_map_status status = TC_MAP_NO_FILE;
  if (GetFileType(file) == FILE_TYPE_DISK && GetFileSizeEx(file, &size) && size.QuadPart > 0) {
    const HANDLE mapping = CreateFileMappingW(file, NULL, PAGE_READONLY, 0, 0, NULL);
    *data = mapping ? MapViewOfFile(mapping, FILE_MAP_READ, 0, 0, 0) : NULL;
    *bytes = (size_t)size.QuadPart;
    status = *data ? TC_MAP_DONE : TC_MAP_REFUSED;
    if (mapping) {
      CloseHandle(mapping); /* the view lives on */
    }
  }
  CloseHandle(file);
  return status;
}

void tc_unmap_file(void *data, size_t bytes) {
  (void)bytes;
  UnmapViewOfFile(data);
}

#endif
