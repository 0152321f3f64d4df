// The functions of cuBLASLt that cublas_gemm.cpp calls. The first call loads the library: linked to a
// program, it would take most of the time of its start, on every rank and without a GPU, too.

#include <dlfcn.h>
#include <string>

#include <cublasLt.h>

namespace {

struct Library {
  void* handle = nullptr;
  std::string error;

  Library() {
    // Where the program looks for libraries, then where the build found it.
    for (const char* const name : {FLATSHARD_CUBLASLT, FLATSHARD_CUBLASLT_FOLDER FLATSHARD_CUBLASLT})
      if (!handle) handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
      error = std::string("cuBLASLt cannot be loaded: ") + dlerror() +
              ": install CUDA, or add the folder of " FLATSHARD_CUBLASLT " to LD_LIBRARY_PATH";
  }
};

const Library& library() {
  static const Library loaded;
  return loaded;
}

void* symbol(const char* name) { return library().handle ? dlsym(library().handle, name) : nullptr; }

// Calls the library's function of this name.
template <auto Function, class... Arguments>
cublasStatus_t call(const char* name, Arguments... arguments) {
  static const auto loaded = reinterpret_cast<decltype(Function)>(symbol(name));
  return loaded ? loaded(arguments...) : CUBLAS_STATUS_NOT_INITIALIZED;
}

using Handle = cublasLtHandle_t;
using Descriptor = cublasLtMatmulDesc_t;
using Layout = cublasLtMatrixLayout_t;
using Preference = cublasLtMatmulPreference_t;
using Algorithm = cublasLtMatmulAlgo_t;
using Result = cublasLtMatmulHeuristicResult_t;

}  // namespace

cublasStatus_t cublasLtCreate(Handle* handle) { return call<&cublasLtCreate>("cublasLtCreate", handle); }

cublasStatus_t cublasLtMatmul(Handle handle, Descriptor operation, const void* alpha, const void* a,
                              Layout of_a, const void* b, Layout of_b, const void* beta, const void* c,
                              Layout of_c, void* d, Layout of_d, const Algorithm* algorithm, void* workspace,
                              size_t bytes, cudaStream_t stream) {
  return call<&cublasLtMatmul>("cublasLtMatmul", handle, operation, alpha, a, of_a, b, of_b, beta, c, of_c, d,
                               of_d, algorithm, workspace, bytes, stream);
}

cublasStatus_t cublasLtMatmulAlgoCheck(Handle handle, Descriptor operation, Layout a, Layout b, Layout c,
                                       Layout d, const Algorithm* algorithm, Result* result) {
  return call<&cublasLtMatmulAlgoCheck>("cublasLtMatmulAlgoCheck", handle, operation, a, b, c, d, algorithm,
                                        result);
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(Handle handle, Descriptor operation, Layout a, Layout b,
                                              Layout c, Layout d, Preference preference, int wanted,
                                              Result* results, int* found) {
  return call<&cublasLtMatmulAlgoGetHeuristic>("cublasLtMatmulAlgoGetHeuristic", handle, operation, a, b, c,
                                               d, preference, wanted, results, found);
}

cublasStatus_t cublasLtMatmulDescCreate(Descriptor* operation, cublasComputeType_t compute,
                                        cudaDataType scale) {
  return call<&cublasLtMatmulDescCreate>("cublasLtMatmulDescCreate", operation, compute, scale);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(Descriptor operation, cublasLtMatmulDescAttributes_t name,
                                              const void* value, size_t bytes) {
  return call<&cublasLtMatmulDescSetAttribute>("cublasLtMatmulDescSetAttribute", operation, name, value,
                                               bytes);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(Preference* preference) {
  return call<&cublasLtMatmulPreferenceCreate>("cublasLtMatmulPreferenceCreate", preference);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(Preference preference) {
  return call<&cublasLtMatmulPreferenceDestroy>("cublasLtMatmulPreferenceDestroy", preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(Preference preference,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void* value, size_t bytes) {
  return call<&cublasLtMatmulPreferenceSetAttribute>("cublasLtMatmulPreferenceSetAttribute", preference, name,
                                                     value, bytes);
}

cublasStatus_t cublasLtMatrixLayoutCreate(Layout* layout, cudaDataType type, uint64_t rows, uint64_t columns,
                                          int64_t pitch) {
  return call<&cublasLtMatrixLayoutCreate>("cublasLtMatrixLayoutCreate", layout, type, rows, columns, pitch);
}

cublasStatus_t cublasLtMatrixLayoutGetAttribute(Layout layout, cublasLtMatrixLayoutAttribute_t name,
                                                void* value, size_t bytes, size_t* written) {
  return call<&cublasLtMatrixLayoutGetAttribute>("cublasLtMatrixLayoutGetAttribute", layout, name, value,
                                                 bytes, written);
}

const char* cublasLtGetStatusString(cublasStatus_t status) {
  static const auto loaded =
      reinterpret_cast<decltype(&cublasLtGetStatusString)>(symbol("cublasLtGetStatusString"));
  return loaded ? loaded(status) : library().error.c_str();
}

size_t cublasLtGetVersion() {
  static const auto loaded = reinterpret_cast<decltype(&cublasLtGetVersion)>(symbol("cublasLtGetVersion"));
  return loaded ? loaded() : 0;
}
