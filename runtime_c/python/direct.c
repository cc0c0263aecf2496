/* The extension module tinycomp.runtime._direct: the short way through a module that is one native region, as a Python
 * callable. It checks the arrays, makes those of the results and runs the program; done by Python's own bytecode, that
 * costs three times as much, and for a small model more than the model itself.
 *
 * What the callable cannot deal with it leaves alone, by returning None: the caller then takes the long way, which
 * converts arrays and knows what to say about those that do not fit. */
#include <Python.h>
#include <stdbool.h>
#include <string.h>

#include "tinycomp.h"

typedef __typeof__(&tc_run_in_room) run_function;
typedef __typeof__(&tc_context_fit) fit_function;
typedef __typeof__(&tc_context_result) result_function;
typedef __typeof__(&tc_context_grown) grown_function;
typedef __typeof__(&tc_context_written_bytes) written_function;

/* What an array must look like. */
typedef struct array_spec {
  Py_ssize_t place;   /* among the arguments or the results: the program may take them in another order */
  Py_ssize_t extends; /* of a result: the input that may be the same memory, or -1 */
  const char *format; /* of the buffer protocol; belongs to an object that the callable keeps */
} array_spec;

/* A result that a function makes of another one: Python objects. */
typedef struct object_result {
  PyObject *make; /* belongs to a tuple that the callable keeps */
  Py_ssize_t from, to;
} object_result;

typedef struct direct {
  run_function run;
  const tc_program *program;
  tc_pool *pool;
  PyObject *contexts;    /* the list of contexts that nobody uses */
  PyObject *new_context; /* makes one more */
  PyObject *array_type, *empty;
  PyObject *inputs, *outputs; /* tuples of (place, extends, format) and of that and a dtype */
  PyObject *makers;           /* a tuple of (function, from, to) */
  PyObject *owner;            /* keeps program and pool alive */
  PyObject *address;          /* the name of a context's attribute */
  Py_ssize_t input_count, output_count;
  fit_function fit;
  result_function result;
  grown_function grown;
  written_function written;
  object_result *objects; /* in the order in which they are made */
  Py_ssize_t object_count;
  Py_ssize_t result_count; /* what a call returns; behind it lies what only functions read */
  int64_t most;            /* bytes that a run may have without being asked for */
  array_spec specs[];      /* of the inputs and outputs */
} direct;

static const char capsule_name[] = "tinycomp.runtime._direct";

_Static_assert(sizeof(Py_ssize_t) == sizeof(int64_t), "dimensions of arrays are those of the runtime");

/* One call's views of the arrays, inputs first, and the inputs as the runtime sees them. */
typedef struct frame {
  Py_ssize_t count;
  Py_buffer *views;
  tc_argument *arguments;
  void **pointers;
} frame;

static bool frame_make(frame *f, Py_ssize_t count) {
  f->count = count;
  f->views = PyMem_Calloc((size_t)count + 1, sizeof(Py_buffer) + sizeof(tc_argument) + sizeof(void *));
  f->arguments = f->views ? (tc_argument *)(f->views + count + 1) : NULL;
  f->pointers = f->views ? (void **)(f->arguments + count + 1) : NULL;
  return f->views || PyErr_NoMemory();
}

static void frame_release(frame *f) {
  for (Py_ssize_t i = 0; i < f->count; i++) {
    PyBuffer_Release(&f->views[i]); /* nothing happens to one that was never filled */
  }
  PyMem_Free(f->views);
}

/* 1 and a view if an array is of the type, 0 if it is not, -1 and an exception if something else is wrong. */
static int view_input(const direct *d, PyObject *array, const array_spec *spec, Py_buffer *view) {
  if ((PyObject *)Py_TYPE(array) != d->array_type) {
    return 0;
  }
  if (PyObject_GetBuffer(array, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)) {
    if (!PyErr_ExceptionMatches(PyExc_BufferError) && !PyErr_ExceptionMatches(PyExc_ValueError)) {
      return -1;
    }
    PyErr_Clear(); /* not contiguous, or a dtype without a buffer interface */
    return 0;
  }
  return !strcmp(view->format, spec->format);
}

static int view_inputs(const direct *d, PyObject *arrays, frame *f) {
  int fits = PySequence_Size(arrays) == d->input_count;
  for (Py_ssize_t i = 0; fits == 1 && i < d->input_count; i++) {
    PyObject *array = PySequence_GetItem(arrays, d->specs[i].place); /* the sequence keeps it alive */
    if (!array) {
      return -1;
    }
    fits = view_input(d, array, &d->specs[i], &f->views[i]);
    f->pointers[i] = f->views[i].buf;
    f->arguments[i] = (tc_argument){f->views[i].buf, (const int64_t *)f->views[i].shape, f->views[i].ndim};
    Py_DECREF(array);
  }
  return fits;
}

/* The context behind its Python object; NULL and an exception if there is none. */
static tc_context *memory_of(const direct *d, PyObject *context) {
  PyObject *address = PyObject_GetAttr(context, d->address);
  tc_context *memory = address ? PyLong_AsVoidPtr(address) : NULL;
  Py_XDECREF(address);
  return memory;
}

/* Puts a size into a shape in the making; false, and the shape gone, with an exception. */
static bool put_size(PyObject **shape, int axis, int64_t value) {
  PyObject *size = *shape ? PyLong_FromLongLong(value) : NULL;
  if (!size || PyTuple_SetItem(*shape, axis, size)) {
    Py_CLEAR(*shape);
  }
  return *shape != NULL;
}

/* A fresh array of this shape, which it takes over, for a result; NULL with an exception. */
static PyObject *empty_array(const direct *d, Py_ssize_t output, PyObject *shape) {
  PyObject *dtype = PyTuple_GetItem(PyTuple_GetItem(d->outputs, output), 3);
  PyObject *array = shape ? PyObject_CallFunctionObjArgs(d->empty, shape, dtype, NULL) : NULL;
  Py_XDECREF(shape);
  return array;
}

/* A fresh array for a result whose sizes are known before the run. */
static PyObject *fresh_result(const direct *d, const tc_context *memory, Py_ssize_t output) {
  const int64_t *dims;
  const int32_t rank = d->result(memory, (int32_t)output, &dims);
  PyObject *shape = PyTuple_New(rank);
  for (int k = 0; k < rank && put_size(&shape, k, dims[k]); k++) {
  }
  return empty_array(d, output, shape);
}

static bool overlap(const Py_buffer *a, const Py_buffer *b) {
  const uintptr_t x = (uintptr_t)a->buf, y = (uintptr_t)b->buf;
  return x < y + (uintptr_t)b->len && y < x + (uintptr_t)a->len;
}

static bool same_array(const Py_buffer *a, const Py_buffer *b) {
  return a->buf == b->buf && a->ndim == b->ndim && !memcmp(a->shape, b->shape, (size_t)a->ndim * sizeof(*a->shape));
}

/* Whether a view of an array that the caller gives for a result is as the result, and apart from all arrays before it
 * but one that it extends. */
static bool may_hold(const direct *d, const tc_context *memory, const frame *f, Py_ssize_t output) {
  const Py_ssize_t number = d->input_count + output;
  const array_spec *spec = &d->specs[number];
  const Py_buffer *view = &f->views[number];
  const int64_t *dims;
  const int32_t rank = d->result(memory, (int32_t)output, &dims);
  bool fits = view->ndim == rank && !strcmp(view->format, spec->format);
  for (int k = 0; fits && k < rank; k++) {
    fits = view->shape[k] == dims[k];
  }
  for (Py_ssize_t i = 0; fits && i < number; i++) {
    const Py_buffer *other = &f->views[i];
    fits = !other->buf || !overlap(view, other) || (i == spec->extends && same_array(view, other));
  }
  return fits;
}

/* Puts the arrays for the results into a list, those that the caller gives in `given` or else fresh ones: 1, 0 if one
 * does not fit, or -1 with an exception. */
static int make_results(const direct *d, const tc_context *memory, frame *f, PyObject *given, PyObject *results) {
  int state = 1;
  for (Py_ssize_t i = 0; state == 1 && i < d->output_count; i++) {
    const Py_ssize_t place = d->specs[d->input_count + i].place;
    Py_buffer *view = &f->views[d->input_count + i];
    PyObject *result = given ? PySequence_GetItem(given, place) : Py_NewRef(Py_None);
    const bool taken = result && result != Py_None;
    const int64_t *dims;
    if (d->result(memory, (int32_t)i, &dims) < 0) { /* it is made when the run has ended */
      state = taken ? 0 : result ? PyList_SetItem(results, place, result) ? -1 : 1 : -1;
      if (taken) {
        Py_DECREF(result);
      }
      continue;
    }
    if (result == Py_None) {
      Py_DECREF(result);
      result = fresh_result(d, memory, i);
    }
    if (!result) {
      if (!PyErr_ExceptionMatches(PyExc_MemoryError) && !PyErr_ExceptionMatches(PyExc_ValueError)) {
        return -1;
      }
      PyErr_Clear(); /* it is too large for memory */
      return 0;
    }
    if (taken && (PyObject *)Py_TYPE(result) != d->array_type) {
      state = 0;
    } else if (PyObject_GetBuffer(result, view, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)) {
      state = -1;
      if (taken && (PyErr_ExceptionMatches(PyExc_BufferError) || PyErr_ExceptionMatches(PyExc_ValueError))) {
        PyErr_Clear(); /* not contiguous, read-only, or a dtype without a buffer interface */
        state = 0;
      }
    } else if (taken && !may_hold(d, memory, f, i)) {
      state = 0;
    }
    f->pointers[d->input_count + i] = view->buf;
    if (state == 1 && !taken) { /* what the run may leave out must not show what lay there */
      const int64_t written = d->written(memory, (int32_t)i);
      if (written < view->len) {
        memset((char *)view->buf + written, 0, (size_t)(view->len - written));
      }
    }
    if (PyList_SetItem(results, place, result)) { /* which takes the reference in any case */
      return -1;
    }
  }
  return state;
}

/* A context that nobody else has until it is given back; the interpreter's lock keeps the list whole. */
static PyObject *take_context(const direct *d) {
  const Py_ssize_t count = PyList_Size(d->contexts);
  if (count <= 0) {
    return PyObject_CallNoArgs(d->new_context);
  }
  PyObject *context = Py_NewRef(PyList_GetItem(d->contexts, count - 1));
  if (PyList_SetSlice(d->contexts, count - 1, count, NULL)) {
    Py_CLEAR(context);
  }
  return context;
}

/* Runs the program: 1 if it succeeded, 0 if it says that something is wrong, -1 with an exception. */
static int run_program(const direct *d, tc_context *memory, const frame *f) {
  tc_error error;
  int32_t status;
  Py_BEGIN_ALLOW_THREADS;
  status = d->run(d->program, memory, d->pool, f->pointers, f->pointers + d->input_count, &error);
  Py_END_ALLOW_THREADS;
  return status == TC_OK;
}

/* A fresh array with a result that the run has measured; None if it does not have the bytes that its dimensions say. */
static PyObject *grown_result(const direct *d, const tc_context *memory, Py_ssize_t output) {
  tc_grown grown;
  const int32_t rank = d->grown(memory, (int32_t)output, &grown);
  if (rank < 0) {
    PyErr_Format(PyExc_SystemError, "the run has not measured output %zd", output);
    return NULL;
  }
  for (int k = 0; k < rank; k++) {
    if (grown.dims[k] < 0) {
      return Py_NewRef(Py_None);
    }
  }
  PyObject *shape = PyTuple_New(rank);
  for (int k = 0; k < rank && put_size(&shape, k, grown.dims[k]); k++) {
  }
  PyObject *array = empty_array(d, output, shape);
  Py_buffer view;
  if (!array || PyObject_GetBuffer(array, &view, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS)) {
    Py_XDECREF(array);
    return NULL;
  }
  const bool fits = view.len == grown.bytes;
  if (fits && grown.bytes) {
    memcpy(view.buf, grown.data, (size_t)grown.bytes);
  }
  PyBuffer_Release(&view);
  if (!fits) {
    Py_DECREF(array);
    return Py_NewRef(Py_None);
  }
  return array;
}

/* Puts the results into the list that only the run has measured: 1, 0 if one makes no sense, or -1 with an exception.
 */
static int take_grown(const direct *d, const tc_context *memory, PyObject *results) {
  for (Py_ssize_t i = 0; i < d->output_count; i++) {
    const int64_t *dims;
    if (d->result(memory, (int32_t)i, &dims) < 0) {
      PyObject *result = grown_result(d, memory, i);
      if (result == Py_None) {
        Py_DECREF(result);
        return 0;
      }
      if (!result || PyList_SetItem(results, d->specs[d->input_count + i].place, result)) {
        return -1;
      }
    }
  }
  return 1;
}

/* Puts the results into the list that are Python objects, and takes away what only they are made of: 1, 0 if one cannot
 * be made, or -1 with an exception. */
static int make_objects(const direct *d, PyObject *results) {
  for (Py_ssize_t i = 0; i < d->object_count; i++) {
    const object_result *made = &d->objects[i];
    PyObject *result = PyObject_CallFunctionObjArgs(made->make, PyList_GetItem(results, made->from), NULL);
    if (!result || result == Py_None) {
      Py_XDECREF(result);
      if (result || PyErr_ExceptionMatches(PyExc_Exception)) {
        PyErr_Clear(); /* the long way says what is wrong, and where */
        return 0;
      }
      return -1;
    }
    if (PyList_SetItem(results, made->to, result)) {
      return -1;
    }
  }
  const Py_ssize_t count = PyList_Size(results);
  return count > d->result_count && PyList_SetSlice(results, d->result_count, count, NULL) ? -1 : 1;
}

/* Takes a sequence of arrays, perhaps one of arrays for the results or None, and perhaps a context that the caller
 * has taken, for a run that may have no memory without being asked for it. Returns a list of results, or None. */
static PyObject *direct_call(PyObject *self, PyObject *const *args, Py_ssize_t count) {
  const direct *d = PyCapsule_GetPointer(self, capsule_name);
  if (d && (count < 1 || count > 3)) {
    PyErr_SetString(PyExc_TypeError, "expected arrays, and perhaps arrays for the results and a context");
    return NULL;
  }
  frame f;
  if (!d || !frame_make(&f, d->input_count + d->output_count)) {
    return NULL;
  }
  PyObject *given = count > 1 && args[1] != Py_None ? args[1] : NULL, *taken = count > 2 ? args[2] : NULL;
  PyObject *results = NULL, *context = NULL;
  int state = given && d->object_count ? 0 : view_inputs(d, args[0], &f);
  if (state == 1) {
    context = taken ? Py_NewRef(taken) : take_context(d);
    tc_context *memory = context ? memory_of(d, context) : NULL;
    tc_error error;
    state = memory ? !d->fit(memory, f.arguments, taken ? 0 : d->most, &error) : -1;
    if (state == 1) {
      results = PyList_New(d->output_count + d->object_count);
      state = results ? make_results(d, memory, &f, given, results) : -1;
    }
    if (state == 1) {
      state = run_program(d, memory, &f);
    }
    if (state == 1) {
      state = take_grown(d, memory, results);
    }
    if (state == 1) {
      state = make_objects(d, results);
    }
  }
  frame_release(&f);
  if (context && !taken && PyList_Append(d->contexts, context)) {
    state = -1;
  }
  Py_XDECREF(context);
  if (state == 1) {
    return results;
  }
  Py_XDECREF(results);
  return state ? NULL : Py_NewRef(Py_None);
}

static PyMethodDef call_method = {"direct", (PyCFunction)(void (*)(void))direct_call, METH_FASTCALL, NULL};

static void direct_free(direct *d) {
  PyObject *const kept[] = {d->contexts, d->new_context, d->array_type, d->empty,  d->inputs,
                            d->outputs,  d->makers,      d->owner,      d->address};
  for (size_t i = 0; i < sizeof(kept) / sizeof(*kept); i++) {
    Py_XDECREF(kept[i]);
  }
  PyMem_Free(d->objects);
  PyMem_Free(d);
}

static void capsule_destroy(PyObject *capsule) { direct_free(PyCapsule_GetPointer(capsule, capsule_name)); }

/* Reads one (place, extends, format), with a dtype behind it for an output. */
static bool spec_read(PyObject *fields, array_spec *spec) {
  PyObject *format, *dtype;
  if (!PyArg_ParseTuple(fields, "nnU|O", &spec->place, &spec->extends, &format, &dtype)) {
    return false;
  }
  spec->format = PyUnicode_AsUTF8AndSize(format, NULL);
  return spec->format != NULL;
}

/* Reads the results that are Python objects: tuples of a function and the places of its argument and its result. */
static bool objects_read(direct *d) {
  d->object_count = PyTuple_Size(d->makers);
  d->objects = PyMem_Calloc((size_t)d->object_count + 1, sizeof(object_result));
  if (!d->objects) {
    PyErr_NoMemory();
    return false;
  }
  const Py_ssize_t room = d->output_count + d->object_count;
  for (Py_ssize_t i = 0; i < d->object_count; i++) {
    object_result *o = &d->objects[i];
    if (!PyArg_ParseTuple(PyTuple_GetItem(d->makers, i), "Onn", &o->make, &o->from, &o->to)) {
      return false;
    }
    if (o->from < 0 || o->from >= room || o->to < 0 || o->to >= room) {
      PyErr_SetString(PyExc_ValueError, "there is no such place among the results");
      return false;
    }
  }
  return true;
}

/* make(functions, program, pool, owner, contexts, new_context, array_type, empty, inputs, outputs, makers,
 * result_count, most) -> callable. The functions tc_run_in_room, tc_context_fit, tc_context_result, tc_context_grown
 * and tc_context_written_bytes, program and pool are addresses, as whole numbers. Each of the makers is a function, and
 * the places among the results of its argument and of what it makes. */
static PyObject *direct_make(PyObject *module, PyObject *args) {
  (void)module;
  PyObject *run, *fit, *result, *grown, *written, *program, *pool, *owner, *contexts, *new_context;
  PyObject *array_type, *empty, *inputs, *outputs, *makers;
  Py_ssize_t result_count;
  long long most;
  if (!PyArg_ParseTuple(args, "(OOOOO)OOOO!OOOO!O!O!nL", &run, &fit, &result, &grown, &written, &program, &pool, &owner,
                        &PyList_Type, &contexts, &new_context, &array_type, &empty, &PyTuple_Type, &inputs,
                        &PyTuple_Type, &outputs, &PyTuple_Type, &makers, &result_count, &most)) {
    return NULL;
  }
  const Py_ssize_t count = PyTuple_Size(inputs);
  const Py_ssize_t output_count = PyTuple_Size(outputs);
  direct *d = PyMem_Calloc(1, sizeof(direct) + (size_t)(count + output_count) * sizeof(array_spec));
  if (!d) {
    return PyErr_NoMemory();
  }
  d->run = (run_function)PyLong_AsVoidPtr(run);
  d->fit = (fit_function)PyLong_AsVoidPtr(fit);
  d->result = (result_function)PyLong_AsVoidPtr(result);
  d->most = most;
  d->grown = (grown_function)PyLong_AsVoidPtr(grown);
  d->written = (written_function)PyLong_AsVoidPtr(written);
  d->program = PyLong_AsVoidPtr(program);
  d->pool = PyLong_AsVoidPtr(pool);
  d->contexts = Py_NewRef(contexts);
  d->new_context = Py_NewRef(new_context);
  d->array_type = Py_NewRef(array_type);
  d->empty = Py_NewRef(empty);
  d->inputs = Py_NewRef(inputs);
  d->outputs = Py_NewRef(outputs);
  d->makers = Py_NewRef(makers);
  d->result_count = result_count;
  d->owner = Py_NewRef(owner);
  d->address = PyUnicode_InternFromString("address");
  d->input_count = count;
  d->output_count = output_count;
  bool made = d->address && !PyErr_Occurred() && objects_read(d);
  for (Py_ssize_t i = 0; made && i < count + output_count; i++) {
    made = spec_read(i < count ? PyTuple_GetItem(inputs, i) : PyTuple_GetItem(outputs, i - count), &d->specs[i]);
  }
  PyObject *capsule = made ? PyCapsule_New(d, capsule_name, capsule_destroy) : NULL;
  if (!capsule) {
    direct_free(d);
    return NULL;
  }
  PyObject *callable = PyCFunction_New(&call_method, capsule);
  Py_DECREF(capsule);
  return callable;
}

static PyMethodDef methods[] = {{"make", direct_make, METH_VARARGS, NULL}, {NULL, NULL, 0, NULL}};

static PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "_direct", .m_size = -1, .m_methods = methods};

PyMODINIT_FUNC PyInit__direct(void) { return PyModule_Create(&definition); }
