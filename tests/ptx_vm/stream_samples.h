#pragma once
// Small programs of two streams that are right, and copies of them with one thing broken.

#include <functional>
#include <string>
#include <vector>

#include "tests/ptx_vm/ptx_vm.h"

namespace flatshard::ptx_vm {

struct StreamSample {
  std::string name;                  // of the mutation, or of the program that is right
  std::vector<FindingKind> finds{};  // any one of these; empty where nothing is wrong
  std::vector<std::string> names{};  // what the report says of both operations
  std::function<std::vector<float>()> run;
};

std::vector<StreamSample> correct_stream_samples();
// Found in every order of streams.
std::vector<StreamSample> broken_stream_samples();
// Hangs where streams do not run beside one another.
StreamSample sample_that_needs_two_streams_at_once();

}  // namespace flatshard::ptx_vm
