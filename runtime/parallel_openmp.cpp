// parallel.h over OpenMP: one parallel region per call, tasks handed out as threads become free.

#include <omp.h>

#include "runtime/check.h"
#include "runtime/parallel.h"

namespace flatshard {

int thread_count() { return omp_get_max_threads(); }

void set_thread_count(int count) {
  check(count >= 1, "thread count is ", count, ", must be at least 1");
  omp_set_num_threads(count);
}

void use_one_thread_here() { omp_set_num_threads(1); }  // OpenMP keeps the number for each thread

void detail::run_tasks(int64_t tasks, TaskFunction function, void* context) {
  if (tasks == 1 || omp_in_parallel() || omp_get_max_threads() == 1) {
    for (int64_t task = 0; task < tasks; ++task) function(context, task, 0);
    return;
  }
#pragma omp parallel for schedule(dynamic)
  for (int64_t task = 0; task < tasks; ++task) function(context, task, omp_get_thread_num());
}

}  // namespace flatshard
