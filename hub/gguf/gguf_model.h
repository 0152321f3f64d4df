#pragma once
// Models in GGUF files: llama.cpp's names of each family, its keys and its tensors, and the layout of their
// values. Linear weights are (out, in). In some families llama.cpp rotates neighbors (x[2i], x[2i + 1]),
// while the model rotates (x[i], x[i + D/2]), so the rows of q and k are in another order in the file. Some
// families add one to the weights of RMSNorm; the file's values include this one.

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "hub/gguf/gguf_file.h"
#include "hub/quantized/read_values.h"
#include "model/config.h"

namespace flatshard {

// A parameter of the model and its tensor in the file. A parameter with gates and ups in turn has two
// tensors.
struct GgufParameter {
  std::string parameter, name;
  std::vector<int64_t> shape;  // as the file has it
  // If the tensor has the parameters of all experts of a block, one after another: their number, and which
  // one this is.
  int64_t experts = 0, expert = 0;
  bool is_row = false;      // a matrix of one row, which is a vector in the file
  int64_t interleaved = 0;  // rows of a head, if the file interleaves the two halves of each head
  bool transposed = false;  // the model has the transpose of the tensor
  float added = 0;          // the tensor is the parameter plus this value
  int64_t turn = -1;  // 0, 1: the tensor has every other value of the parameter, from the first or second
  bool matrix() const { return shape.size() == 2; }
  int64_t size() const;
  std::vector<int64_t> shape_of_tensor() const;
  std::vector<int64_t> shape_in_model() const;

  // Convert between a row of the file's matrix and the same row of the model's.
  int64_t row_in_model(int64_t row) const;
  int64_t row_in_file(int64_t row) const;
};

// All tensors of a model, in model order. Throws an Error if llama.cpp does not know the family.
std::vector<GgufParameter> gguf_parameters(const ModelConfig& config);

// Read elements [first, first + count) of the parameter in the order of the file from its values in the
// model, and in the order of the model from the file. Whole rows are fastest.
void read_as_gguf(const GgufParameter& p, const ReadValues& parameter, int64_t first, int64_t count,
                  float* to);
// `tensors` are those of one parameter.
void read_from_gguf(std::span<const GgufParameter> tensors, const GgufFile& file, int64_t first,
                    int64_t count, float* to);

// llama.cpp's name of the family's architecture. An Error names a setting that the architecture cannot
// express.
std::string gguf_architecture(const ModelConfig& config);
// Writes the keys that describe the model, and declares no tensors. Returns notes for the user.
std::vector<std::string> put_gguf_config(GgufWriter& out, const ModelConfig& config);
// The resolved config of the model in a file. An Error names an unsupported key or tensor, or lists missing
// or unexpected tensors.
ModelConfig read_gguf_config(const GgufFile& file);

}  // namespace flatshard
