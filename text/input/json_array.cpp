#include <utility>

#include "runtime/check.h"
#include "runtime/text.h"
#include "text/input/text_input.h"

namespace flatshard {
namespace {

constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

class Cutter {
 public:
  Cutter(const std::string& path,
         const std::function<void(std::string element, int64_t line, int64_t number)>& take)
      : path_(path), take_(take) {}

  void add(char c) {
    if (c == '\n') ++line_;
    switch (place_) {
      case Place::before_array:
        if (c == '[') place_ = Place::before_element;
        break;  // is_json_array() has found nothing else
      case Place::before_element:
        if (is_blank(c)) break;
        if (c == ']' && number_ == 0) {
          place_ = Place::after_array;
          break;
        }
        check(c != ',' && c != ']', path_, ':', line_, ": has a comma too many, after element ", number_);
        place_ = Place::element;
        begun_ = line_;
        [[fallthrough]];
      case Place::element:
        add_to_element(c);
        break;
      case Place::after_array:
        check(is_blank(c), path_, ':', line_,
              ": has text after the array, must be one array, or one record per line");
    }
  }
  void end() const {
    check(place_ == Place::after_array, path_, ':', line_, ": ends before its array does, after ",
          counted(number_, "complete element"), ": it is cut off");
  }

 private:
  void add_to_element(char c) {
    if (in_string_) {
      in_string_ = c != '"' || escaped_;
      escaped_ = c == '\\' && !escaped_;
    } else if (depth_ == 0 && (c == ',' || c == ']')) {
      take_(std::exchange(element_, {}), begun_, ++number_);
      place_ = c == ',' ? Place::before_element : Place::after_array;
      return;
    } else if (c == '"') {
      in_string_ = true;
    } else if (c == '{' || c == '[') {
      ++depth_;
    } else if ((c == '}' || c == ']') && depth_ > 0) {
      --depth_;
    }
    element_ += c;
    if (std::ssize(element_) > kMostJsonBytes)
      fail(str(path_, ':', begun_, ": element ", number_ + 1, " has more than ", human_bytes(kMostJsonBytes),
               ", must be shorter"));
  }

  const std::string& path_;
  const std::function<void(std::string element, int64_t line, int64_t number)>& take_;
  enum class Place { before_array, before_element, element, after_array } place_ = Place::before_array;
  std::string element_;
  bool in_string_ = false, escaped_ = false;
  int64_t depth_ = 0, line_ = 1, begun_ = 1, number_ = 0;
};

}  // namespace

bool is_json_array(TextInput& input) {
  std::string_view text = input.next();
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  while (!text.empty() && is_blank(text.front())) text.remove_prefix(1);
  return text.starts_with('[');
}

void each_element(TextInput& input,
                  const std::function<void(std::string element, int64_t line, int64_t number)>& take) {
  Cutter cutter(input.path(), take);
  for (std::string_view text; !(text = input.next()).empty(); input.skip(text.size()))
    for (const char c : text) cutter.add(c);
  cutter.end();
}

}  // namespace flatshard
