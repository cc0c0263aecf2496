/* tinycomp: saved modules in programs without Python. Load a file that Module.save wrote, set inputs, run.
 *
 *   tc_error error;
 *   tc_module *module;
 *   tc_session *session;
 *   if (tc_module_open("model.tcm", NULL, &module, &error) || tc_session_open(module, &session, &error)) ...
 *   const tc_tensor image = {.data = pixels, .dtype = "float32", .rank = 4, .dims = {1, 3, 224, 224}};
 *   if (tc_session_set_input(session, 0, &image, &error) || tc_session_run(session, &error)) ...
 *   tc_tensor scores;
 *   tc_session_output(session, 0, &scores, &error);
 *
 * The nodes of the model must all be on the target "c", or on targets that generate C source, whose functions the
 * program brings along (tc_module_options.regions). A file is checked while it is loaded, and so are tensors before a
 * run: what does not fit is an error, never a crash. A module is immutable and serves any number of threads, each with
 * a session of its own. Every function that can fail returns a tc_status (0 is success) and fills the caller's
 * tc_error; there is no global state, and after the first run with given sizes nothing is allocated.
 *
 * Tensors are row-major without gaps and aligned to their elements; elements of fewer than 8 bits take a byte each. */
#ifndef TINYCOMP_RUN_H
#define TINYCOMP_RUN_H

#include <stddef.h>
#include <stdint.h>

#include "tinycomp_error.h"

#if defined(__GNUC__) || defined(__clang__)
#define TC_PUBLIC __attribute__((visibility("default")))
#else
#define TC_PUBLIC
#endif

#ifdef __cplusplus
extern "C" {
#endif

enum { TC_TENSOR_RANK = 8 };

typedef struct tc_module tc_module;
typedef struct tc_session tc_session;

/* A tensor for a run, or from one. dtype is a name as in numpy: "float32", "int64", "bool", "bfloat16". */
typedef struct tc_tensor {
  void *data; /* what inputs point to is only read */
  const char *dtype;
  int32_t rank;
  int64_t dims[TC_TENSOR_RANK];
} tc_tensor;

/* What a module takes or gives. */
typedef struct tc_tensor_spec {
  const char *name;
  const char *dtype;
  int32_t rank;                        /* -1 if it is not known */
  int64_t dims[TC_TENSOR_RANK];        /* -1 where a run decides */
  const char *symbols[TC_TENSOR_RANK]; /* what such a dimension is called, or NULL; equal names are equal sizes */
  int32_t optional;                    /* whether the file has a value for an input that is not set */
} tc_tensor_spec;

/* A region that a target has generated C source for: the function of that source, which returns 0 if all went well. */
typedef struct tc_region {
  const char *name; /* as in the report: the region's symbol */
  int (*run)(const void *const *inputs, void *const *outputs, const void *const *constants, void *scratch);
} tc_region;

typedef struct tc_module_options {
  int32_t threads;     /* that a run may use, the caller among them; 0 for what the process may use */
  const char *isa;     /* an instruction set, or NULL for the best one; see TINYCOMP_ISA */
  int32_t regions;     /* how many functions follow */
  const tc_region *of; /* they must live as long as the module */
} tc_module_options;

/* Loads a saved module; options may be NULL. The file is mapped and must not change while the module is open. */
TC_PUBLIC int32_t tc_module_open(const char *path, const tc_module_options *options, tc_module **module,
                                 tc_error *error);
/* The same of a file's contents in memory, which must outlive the module. */
TC_PUBLIC int32_t tc_module_read(const void *data, size_t bytes, const tc_module_options *options, tc_module **module,
                                 tc_error *error);
/* After all its sessions. */
TC_PUBLIC void tc_module_close(tc_module *module);

TC_PUBLIC int32_t tc_module_input_count(const tc_module *module);
TC_PUBLIC int32_t tc_module_output_count(const tc_module *module);
/* TC_INVALID if there is none with this index. Texts live as long as the module. */
TC_PUBLIC int32_t tc_module_input(const tc_module *module, int32_t index, tc_tensor_spec *spec);
TC_PUBLIC int32_t tc_module_output(const tc_module *module, int32_t index, tc_tensor_spec *spec);
/* The index of the input or output of a name; -1 if there is none. */
TC_PUBLIC int32_t tc_module_find_input(const tc_module *module, const char *name);
TC_PUBLIC int32_t tc_module_find_output(const tc_module *module, const char *name);

/* The memory for one run at a time. */
TC_PUBLIC int32_t tc_session_open(const tc_module *module, tc_session **session, tc_error *error);
TC_PUBLIC void tc_session_close(tc_session *session);

/* What later runs read. The data must stay where it is until then, and may change between runs. */
TC_PUBLIC int32_t tc_session_set_input(tc_session *session, int32_t index, const tc_tensor *tensor, tc_error *error);
/* Where later runs write a result, and how many bytes there are; data NULL for memory of the session. It overlaps
 * nothing that a run reads, but for a cache that the model extends in place. */
TC_PUBLIC int32_t tc_session_set_output(tc_session *session, int32_t index, void *data, int64_t bytes, tc_error *error);

/* Ends later runs with TC_LIMIT after so many seconds, or before they hold more than so many bytes; 0 for no limit. */
TC_PUBLIC void tc_session_limit(tc_session *session, double seconds, int64_t bytes);

TC_PUBLIC int32_t tc_session_run(tc_session *session, tc_error *error);
/* A result of the last run, which lives until the next one or until the session is closed: what is fed to the next run
 * is copied before, or lies in memory that was set for it. */
TC_PUBLIC int32_t tc_session_output(const tc_session *session, int32_t index, tc_tensor *tensor, tc_error *error);

#ifdef __cplusplus
}
#endif

#endif
