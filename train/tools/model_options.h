#pragma once
// The options of every program that runs a model.

#include <string>

namespace CLI {
class App;
}

namespace flatshard {

// --dtype and --device, with the given values as defaults.
void declare_model_options(CLI::App& app, std::string& dtype, std::string& device);

}  // namespace flatshard
