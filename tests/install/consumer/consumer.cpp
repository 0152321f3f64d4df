// Uses each installed library once.

#include <iostream>

#include "comm/world.h"
#include "kernels/rmsnorm.h"
#include "model/model.h"
#include "runtime/crc64.h"
#include "runtime/version.h"
#include "text/tokenizer/tokenizer.h"

using namespace flatshard;

int main(int argc, char** argv) {
  World world;
  if (world.rank() == 0) std::cout << version_text("consumer") << "\nranks " << world.size() << '\n';

  StreamSet streams(Device::cpu());
  float x[2] = {3, 4}, w[2] = {1, 1}, y[2], rstd[1];
  rmsnorm_forward(streams.add("compute"), {.y = tensor_of(y, {1, 2}),
                                           .rstd = tensor_of(rstd, {1}),
                                           .x = tensor_of(x, {1, 2}),
                                           .w = tensor_of(w, {2}),
                                           .eps = 0});
  Arena tables("tables", Device::cpu());
  ModelConfig config;
  config.layers = 1, config.hidden = 8, config.heads = 2, config.kv_heads = 2, config.head_dim = 4;
  config.ffn = 16, config.vocab = 32, config.max_positions = 16;
  const Model model(resolved(config), tables);
  std::cout << "rmsnorm " << y[0] << "\nparameters " << model.parameter_count() << "\ncrc " << crc64({})
            << '\n';
  if (argc > 1) std::cout << "tokens " << Tokenizer(argv[1]).encode("a text").ids.size() << '\n';
}
