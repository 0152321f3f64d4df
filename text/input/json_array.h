#pragma once
// Cuts a file that is one JSON array into the texts of its elements, one at a time. Checks only the
// separators of elements; the parser of an element checks the rest.

#include <cstdint>
#include <functional>
#include <string>

#include "text/input/text_input.h"

namespace flatshard {

// Whether the text begins like an array.
bool is_json_array(TextInput& input);

// Calls take(element, line, number) for each element: the text, the line where it begins, and its number
// from 1.
void each_element(TextInput& input,
                  const std::function<void(std::string element, int64_t line, int64_t number)>& take);

}  // namespace flatshard
