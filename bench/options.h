#pragma once
// The command line of bench.

#include <string>
#include <vector>

#include "bench/step_bench.h"
#include "bench/tokenizer_bench.h"
#include "train/command_line/command.h"

namespace flatshard::bench {

struct Options {
  std::vector<std::string> words;
  std::vector<std::string> rest;  // arguments that are no options: config keys of --step
  std::string device = "cpu";
  int threads = 0;  // 0: all processors of the process
  std::string json_file;
  double seconds = 0;  // 0: the default
  bool list = false;
  bool detail = false;
  int rounds = 1;
  int repeat = 0;  // 0: cases are timed
  bool tuned = false;
  bool step = false, ops = false, peer = false, lora = false, comm = false, checkpoint = false;
  std::string decode;  // model folder
  bool vm = false, opcodes = false;
  bool resources = false;
  bool small = false, serve = false;
  StepOptions training;
  TokenizerOptions tokenizer;
  std::string image, image_model;
  bool bf16 = false;

  double seconds_or(double fallback) const { return seconds > 0 ? seconds : fallback; }
};

// The options, which set the members of `options`.
std::vector<Option> options_of(Options& options);

}  // namespace flatshard::bench
