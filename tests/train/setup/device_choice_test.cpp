#include "train/setup/device_choice.h"

#include "build_config.h"
#include "tests/test.h"

using namespace flatshard;

TEST_CASE("a program that cannot use the requested GPU reports the reason and the remedy") {
  if (cuda_device_count() > 0) return test::skip("there is a GPU");
  const std::string error = test::error_of([] { choose_device("run.device", DeviceChoice::cuda); });
  CAPTURE(error);
  const std::string missing = kOpsWithoutCuda;
  CHECK(error.find("run.device = \"cuda\", but ") == 0);
  CHECK(error.find(!kCudaBuilt        ? "no CUDA backend: rebuild with"
                   : !missing.empty() ? missing
                                      : "this process can use no GPU (") != std::string::npos);
  CHECK(error.find("or choose \"cpu\"") != std::string::npos);
}

TEST_CASE("a plan takes a GPU where it is asked for one, in every build") {
  if (why_no_gpu().empty()) return test::skip("there is a GPU");
  CHECK(planned_device(DeviceChoice::cuda, 0, 3) == Device::cuda(3));
  CHECK(planned_device(DeviceChoice::automatic, 0, 3) == Device::cpu());
  CHECK(planned_device(DeviceChoice::cpu, 0, 3) == Device::cpu());
}

TEST_CASE("auto selects the given GPU if there is one" * doctest::test_suite("gpu")) {
  CHECK(choose_device("run.device", DeviceChoice::cpu) == Device::cpu());
  CHECK(why_on_cpu(DeviceChoice::cpu).empty());
  const int gpus = cuda_device_count();
  if (gpus == 0) {
    CHECK(choose_device("run.device", DeviceChoice::automatic) == Device::cpu());
    CHECK((kCudaBuilt || why_on_cpu(DeviceChoice::automatic).empty()));
    return test::skip("no GPU");
  }
  for (int gpu = 0; gpu < gpus; ++gpu)
    CHECK(choose_device("run.device", DeviceChoice::automatic, gpu) == Device::cuda(gpu));
}
