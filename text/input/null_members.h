#pragma once
// Members of a JSON object that are null count as absent: a table has every column in every row, and the
// messages of OpenAI's format say "content": null beside tool calls.

#include <nlohmann/json_fwd.hpp>

namespace flatshard {

// Removes null members from the object, but not from the values in it. Leaves a value that is no object
// unchanged.
void drop_null_members(nlohmann::ordered_json& object);

}  // namespace flatshard
