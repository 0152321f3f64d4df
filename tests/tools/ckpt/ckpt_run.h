#pragma once
// The program ckpt and its test data: checkpoints of a real run, and handmade model folders.

#include <functional>
#include <optional>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "train/save/train_state.h"

namespace flatshard::test {

struct Ran {
  int exit_code;
  std::string out, err;
};
std::ostream& operator<<(std::ostream& out, const Ran& ran);

Ran ckpt(const std::vector<std::string>& words);

// Runs a ckpt command that must fail for this reason.
void check_refused(const std::vector<std::string>& words, const std::string& reason);

bool has(const std::string& text, const std::string& part);
void write_file(const std::string& path, const std::string& text);
void flip_byte(const std::string& path, int64_t at);
std::set<std::string> names_in(const std::string& folder);
std::vector<float> all_floats(const SafetensorsEntry& entry);

// Changes the state of a checkpoint, and updates its checksums.
void change_state(const std::string& checkpoint, const std::function<void(TrainState&)>& change);
void set_loss(const std::string& checkpoint, std::optional<double> loss);

// A folder with a run of 6 steps: checkpoints after 2, 4 and 6, of which 4 is the best, and model/. Made
// once; every test works on a copy.
std::string copy_of_run(const std::string& name);

// A model folder of a config and tensors made by hand.
void write_model(const std::string& folder, const std::string& config,
                 const std::vector<SafetensorsSpec>& specs, const std::vector<float>& values);

// A GGUF file of a small model of the family Llama, with a tokenizer of golden/tokenizers and three unused
// tokens. Returns the model folder that it was made of.
std::string write_gguf(const std::string& path, const std::string& tokenizer);

}  // namespace flatshard::test
