// The library is loaded by its first call. It needs no GPU for these.

#include <string>

#include <cublasLt.h>

#include "tests/process.h"
#include "tests/test.h"

using namespace flatshard;

TEST_CASE("cuBLASLt is the one that this build was compiled for") {
  CHECK(cublasLtGetVersion() / 10000 == CUBLAS_VER_MAJOR);
  CHECK(std::string(cublasLtGetStatusString(CUBLAS_STATUS_INVALID_VALUE)).find("parameter") !=
        std::string::npos);
  cublasLtMatrixLayout_t layout = nullptr;
  REQUIRE(cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, 3, 5, 7) == CUBLAS_STATUS_SUCCESS);
  int64_t pitch = 0;
  size_t written = 0;
  CHECK(cublasLtMatrixLayoutGetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_LD, &pitch, sizeof(pitch),
                                         &written) == CUBLAS_STATUS_SUCCESS);
  CHECK(pitch == 7);
}

// Linked to the programs, it would take most of the time of their start.
TEST_CASE("programs start without cuBLASLt") {
  const test::Finished run = test::run_command("LD_DEBUG=libs @train --version 2>&1");
  CHECK(run.exit_code == 0);
  CHECK(run.output.find("libstdc++") != std::string::npos);
  CHECK(run.output.find("libcublasLt") == std::string::npos);
}
