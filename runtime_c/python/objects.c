/* The extension module tinycomp.ops._objects: numbers become Python objects, rows of them dictionaries, and indices the
 * texts of a table. A dictionary is a copy of one that has all keys already, which costs no search for places and no
 * growth. */
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

/* A dictionary from all labels to zero; NULL with an exception. */
static PyObject *empty_row(PyObject *labels) {
  PyObject *row = PyDict_New(), *zero = PyFloat_FromDouble(0.0);
  bool made = row && zero;
  for (Py_ssize_t i = 0; made && i < PyTuple_Size(labels); i++) {
    made = !PyDict_SetItem(row, PyTuple_GetItem(labels, i), zero);
  }
  Py_XDECREF(zero);
  if (!made) {
    Py_CLEAR(row);
  }
  return row;
}

/* Numbers by rows and columns, wherever they lie. */
typedef struct matrix {
  const char *data;
  Py_ssize_t rows, columns, row_stride, column_stride;
  bool is_double;
} matrix;

/* Whether a view is a matrix, or a vector, which is one row. */
static bool read_matrix(const Py_buffer *view, matrix *m) {
  m->is_double = view->format && !strcmp(view->format, "d");
  if (view->ndim < 1 || view->ndim > 2 || !view->format || (!m->is_double && strcmp(view->format, "f") != 0)) {
    return false;
  }
  const int last = view->ndim - 1;
  m->data = view->buf;
  m->rows = last ? view->shape[0] : 1;
  m->row_stride = last ? view->strides[0] : 0;
  m->columns = view->shape[last];
  m->column_stride = view->strides[last];
  return true;
}

/* Gives a dictionary the numbers of a row; false with an exception. */
static bool fill_row(PyObject *row, PyObject *labels, const matrix *m, const char *data) {
  for (Py_ssize_t i = 0; i < m->columns; i++, data += m->column_stride) {
    double value;
    if (m->is_double) {
      memcpy(&value, data, sizeof(value));
    } else {
      float narrow;
      memcpy(&narrow, data, sizeof(narrow));
      value = narrow;
    }
    PyObject *number = PyFloat_FromDouble(value);
    const bool failed = !number || PyDict_SetItem(row, PyTuple_GetItem(labels, i), number);
    Py_XDECREF(number);
    if (failed) {
      return false;
    }
  }
  return true;
}

/* One dictionary for each row, copies of `model` with other numbers; NULL with an exception. */
static PyObject *make_rows(PyObject *labels, PyObject *model, const matrix *m) {
  PyObject *made = PyList_New(m->rows);
  bool good = made;
  for (Py_ssize_t i = 0; good && i < m->rows; i++) {
    PyObject *row = PyDict_Copy(model);
    good = row && fill_row(row, labels, m, m->data + i * m->row_stride);
    if (row && PyList_SetItem(made, i, row)) { /* which takes the reference in any case */
      good = false;
    }
  }
  if (!good) {
    Py_CLEAR(made);
  }
  return made;
}

/* A list with a dictionary for each row of a matrix of float32 or float64, from the labels of its columns to its
 * numbers; a vector is one row. None if there is not one label per column, or it is another array. */
static PyObject *rows_call(PyObject *self, PyObject *array) {
  PyObject *labels = PyTuple_GetItem(self, 0), *model = PyTuple_GetItem(self, 1);
  Py_buffer view;
  if (PyObject_GetBuffer(array, &view, PyBUF_STRIDES | PyBUF_FORMAT)) {
    return NULL;
  }
  matrix m;
  const bool fits = read_matrix(&view, &m) && m.columns == PyTuple_Size(labels);
  PyObject *made = fits ? make_rows(labels, model, &m) : Py_NewRef(Py_None);
  PyBuffer_Release(&view);
  return made;
}

static PyMethodDef rows_method = {"rows", rows_call, METH_O, NULL};

/* A function with objects of its own; takes over the reference to their tuple, which may be NULL with an exception. */
static PyObject *bound(PyMethodDef *method, PyObject *self) {
  PyObject *made = self ? PyCFunction_New(method, self) : NULL;
  Py_XDECREF(self);
  return made;
}

/* rows_of(labels): the function of an array that `rows_call` describes. */
static PyObject *rows_of(PyObject *module, PyObject *argument) {
  (void)module;
  PyObject *labels = PySequence_Tuple(argument), *model = labels ? empty_row(labels) : NULL;
  PyObject *self = model ? PyTuple_Pack(2, labels, model) : NULL;
  Py_XDECREF(labels);
  Py_XDECREF(model);
  return bound(&rows_method, self);
}

/* The shape of an array as a tuple; NULL with an exception. */
static PyObject *shape_of(const Py_buffer *view) {
  PyObject *shape = PyTuple_New(view->ndim);
  for (int i = 0; shape && i < view->ndim; i++) {
    PyObject *size = PyLong_FromSsize_t(view->shape[i]);
    if (!size || PyTuple_SetItem(shape, i, size)) {
      Py_CLEAR(shape);
    }
  }
  return shape;
}

/* Puts the object at every index into an array of objects: 1, or 0 if an index lies outside of the table. */
static int take_objects(PyObject *table, const Py_buffer *indices, const Py_buffer *objects) {
  const Py_ssize_t count = PyTuple_Size(table);
  for (Py_ssize_t i = 0; i < indices->len / indices->itemsize; i++) {
    int64_t index;
    if (indices->itemsize == sizeof(int32_t)) {
      int32_t narrow;
      memcpy(&narrow, (const char *)indices->buf + i * indices->itemsize, sizeof(narrow));
      index = narrow;
    } else {
      memcpy(&index, (const char *)indices->buf + i * indices->itemsize, sizeof(index));
    }
    index += index < 0 ? count : 0;
    if (index < 0 || index >= count) {
      return 0;
    }
    PyObject **place = (PyObject **)objects->buf + i, *before = *place;
    *place = Py_NewRef(PyTuple_GetItem(table, (Py_ssize_t)index));
    Py_XDECREF(before);
  }
  return 1;
}

/* Whether elements are int32 or int64, whatever a system calls them. */
static bool are_indices(const Py_buffer *view) {
  return (!strcmp(view->format, "i") && view->itemsize == sizeof(int32_t)) ||
         ((!strcmp(view->format, "l") || !strcmp(view->format, "q")) && view->itemsize == sizeof(int64_t));
}

/* An array of objects in the shape of an array of int32 or int64, the entries of a table at these indices. None if an
 * index lies outside of the table, or it is another array. */
static PyObject *table_call(PyObject *self, PyObject *array) {
  Py_buffer indices, objects;
  if (PyObject_GetBuffer(array, &indices, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT)) {
    return NULL;
  }
  PyObject *made = NULL;
  if (!are_indices(&indices)) {
    made = Py_NewRef(Py_None);
  } else {
    PyObject *shape = shape_of(&indices);
    made = shape ? PyObject_CallFunctionObjArgs(PyTuple_GetItem(self, 1), shape, PyTuple_GetItem(self, 2), NULL) : NULL;
    Py_XDECREF(shape);
    if (made && PyObject_GetBuffer(made, &objects, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE)) {
      Py_CLEAR(made);
    } else if (made) {
      if (!take_objects(PyTuple_GetItem(self, 0), &indices, &objects)) {
        Py_DECREF(made);
        made = Py_NewRef(Py_None);
      }
      PyBuffer_Release(&objects);
    }
  }
  PyBuffer_Release(&indices);
  return made;
}

static PyMethodDef table_method = {"table", table_call, METH_O, NULL};

/* table_of(entries, empty, dtype): the function of an array that `table_call` describes; `empty(shape, dtype)` makes
 * an array of objects. */
static PyObject *table_of(PyObject *module, PyObject *arguments) {
  (void)module;
  PyObject *entries, *empty, *dtype;
  if (!PyArg_ParseTuple(arguments, "OOO", &entries, &empty, &dtype)) {
    return NULL;
  }
  PyObject *table = PySequence_Tuple(entries), *self = table ? PyTuple_Pack(3, table, empty, dtype) : NULL;
  Py_XDECREF(table);
  return bound(&table_method, self);
}

static PyMethodDef methods[] = {
    {"rows_of", rows_of, METH_O, NULL},
    {"table_of", table_of, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, .m_name = "_objects", .m_size = 0, .m_methods = methods};

PyMODINIT_FUNC PyInit__objects(void) { return PyModule_Create(&definition); }
