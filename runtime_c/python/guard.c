/* The extension module tinycomp.memory._guard: maps of files that others may cut off. To read behind the end of such a
 * file is SIGBUS, which ends the process; here a page of zeros takes the place of what is gone, and the map remembers
 * it, so that whoever has read it can say so. Other faults go to the handler that was there before. */
#include <Python.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GUARDS = 4096 };

typedef struct guard {
  atomic_uintptr_t begin, end; /* both 0 where the place is free; begin is written last, and cleared first */
  atomic_int hit;
} guard;

static guard guards[GUARDS];
static struct sigaction before;
static uintptr_t page_size;
static pthread_mutex_t changing = PTHREAD_MUTEX_INITIALIZER;
static bool is_installed;

static bool replaced(uintptr_t address) {
  for (int i = 0; i < GUARDS; i++) {
    const uintptr_t begin = atomic_load(&guards[i].begin), end = atomic_load(&guards[i].end);
    if (!begin || address < begin || address >= end) {
      continue;
    }
    const uintptr_t page = address & ~(page_size - 1);
    atomic_store(&guards[i].hit, 1);
    return mmap((void *)page, end - page, PROT_READ, MAP_PRIVATE | MAP_FIXED | MAP_ANONYMOUS, -1, 0) != MAP_FAILED;
  }
  return false;
}

static void on_fault(int number, siginfo_t *info, void *context) {
  if (replaced((uintptr_t)info->si_addr)) {
    return;
  }
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(number, info, context);
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(number);
  } else {
    signal(number, SIG_DFL); /* the instruction faults once more, and ends the process */
  }
}

static bool install(void) {
  if (!is_installed) {
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER};
    sigemptyset(&action.sa_mask);
    page_size = (uintptr_t)sysconf(_SC_PAGESIZE);
    is_installed = sigaction(SIGBUS, &action, &before) == 0;
  }
  return is_installed;
}

static PyObject *add(PyObject *self, PyObject *args) {
  (void)self;
  unsigned long long address, length;
  if (!PyArg_ParseTuple(args, "KK", &address, &length)) {
    return NULL;
  }
  int place = -1;
  pthread_mutex_lock(&changing);
  for (int i = 0; install() && i < GUARDS && place < 0; i++) {
    if (!atomic_load(&guards[i].begin)) {
      place = i;
      atomic_store(&guards[i].hit, 0);
      atomic_store(&guards[i].end, (uintptr_t)((address + length + page_size - 1) & ~(page_size - 1)));
      atomic_store(&guards[i].begin, (uintptr_t)address);
    }
  }
  pthread_mutex_unlock(&changing);
  return PyLong_FromLong(place);
}

static guard *at(PyObject *number) {
  const long place = PyLong_AsLong(number);
  if (place < 0 || place >= GUARDS) {
    if (!PyErr_Occurred()) {
      PyErr_SetString(PyExc_IndexError, "there is no such guard");
    }
    return NULL;
  }
  return &guards[place];
}

static PyObject *drop(PyObject *self, PyObject *number) {
  (void)self;
  guard *one = at(number);
  if (!one) {
    return NULL;
  }
  atomic_store(&one->begin, 0);
  Py_RETURN_NONE;
}

static PyObject *is_hit(PyObject *self, PyObject *number) {
  (void)self;
  guard *one = at(number);
  return one ? PyBool_FromLong(atomic_load(&one->hit)) : NULL;
}

/* What the module mmap does as well, but with the interpreter's lock, which other threads wait for meanwhile. */
static PyObject *give_back(PyObject *self, PyObject *map) {
  (void)self;
  Py_buffer view;
  if (PyObject_GetBuffer(map, &view, PyBUF_SIMPLE)) {
    return NULL;
  }
#ifdef MADV_DONTNEED
  Py_BEGIN_ALLOW_THREADS;
  (void)madvise(view.buf, (size_t)view.len, MADV_DONTNEED); /* a wish: if it is refused, the pages stay */
  Py_END_ALLOW_THREADS;
#endif
  PyBuffer_Release(&view);
  Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"add", add, METH_VARARGS, "Guard a map, given its address and bytes; return its number, -1 if there is no room."},
    {"drop", drop, METH_O, "Forget a map, before it is unmapped."},
    {"is_hit", is_hit, METH_O, "Tell whether something behind the end of the file was read."},
    {"give_back", give_back, METH_O, "Let the system have all pages of a map that are in memory."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_guard", "Maps of files that others may cut off.", -1, methods, NULL, NULL, NULL, NULL};

static void before_fork(void) { pthread_mutex_lock(&changing); }
static void after_fork(void) { pthread_mutex_unlock(&changing); }

PyMODINIT_FUNC PyInit__guard(void) {
  pthread_atfork(before_fork, after_fork, after_fork);
  return PyModule_Create(&module);
}
