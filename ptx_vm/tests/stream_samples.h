#pragma once
// Small correct programs on two streams, and mutations of them with one error.

#include <functional>
#include <string>
#include <vector>

#include "ptx_vm/ptx_vm.h"

namespace flatshard::ptx_vm {

struct StreamSample {
  std::string name;                  // name of the mutation, or of the correct program
  std::vector<FindingKind> finds{};  // any one of these is expected; empty: no finding
  std::vector<std::string> names{};  // names of the two operations in the report
  std::function<std::vector<float>()> run;
};

std::vector<StreamSample> correct_stream_samples();
// Samples whose error is found in every order of streams.
std::vector<StreamSample> broken_stream_samples();
// A program that hangs unless streams run concurrently.
StreamSample sample_that_needs_two_streams_at_once();

}  // namespace flatshard::ptx_vm
