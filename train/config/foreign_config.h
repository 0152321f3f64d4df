#pragma once
// The config of another trainer as one of ours (`train --from FILE`): a YAML file of axolotl, a recipe of
// torchtune, or an SFTConfig of TRL as YAML or JSON, for example its keyword arguments. Every key of the file
// is translated by the table of foreign_keys.h. A key that is not translated becomes a comment if training
// does not depend on it, and an error otherwise. Where the other trainer has another default than we do, its
// default is written out.

#include <string>

namespace flatshard {

// Returns TOML for load_config(), with the account of all keys as comments. `ranks` is the number of ranks
// that will train: the batch of other trainers is per device. An Error names the file and the line that
// cannot be read, or all lines that cannot be translated.
std::string converted_config(const std::string& path, int ranks);

}  // namespace flatshard
