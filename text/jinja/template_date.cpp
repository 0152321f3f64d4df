#include "text/jinja/template_date.h"

#include <algorithm>
#include <chrono>
#include <ctime>

#include "runtime/check.h"
#include "runtime/text.h"

namespace flatshard {
namespace {

constexpr char kForm[] = "0000-00-00";

bool is_date(const std::string& text) {
  if (text.size() != sizeof kForm - 1) return false;
  for (size_t i = 0; i < text.size(); ++i)
    if (kForm[i] == '0' ? text[i] < '0' || text[i] > '9' : text[i] != kForm[i]) return false;
  const auto number = [&](size_t at, size_t digits) { return std::stoi(text.substr(at, digits)); };
  const std::chrono::year_month_day date{std::chrono::year(number(0, 4)),
                                         std::chrono::month(static_cast<unsigned>(number(5, 2))),
                                         std::chrono::day(static_cast<unsigned>(number(8, 2)))};
  return number(0, 4) > 0 && date.ok();
}

// Replaces %f, %z and %Z, which Python and the C library print differently, for a time without a zone.
std::string for_c(const std::string& format) {
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    const char next = format[i] == '%' && i + 1 < format.size() ? format[i + 1] : '\0';
    if (next == 'f') out += "000000";
    if (next != 'f' && next != 'z' && next != 'Z') out += format.substr(i, next == '\0' ? 1 : 2);
    if (next != '\0') ++i;
  }
  return out;
}

}  // namespace

std::string todays_date() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::string text(sizeof kForm, '\0');
  text.resize(std::strftime(text.data(), text.size(), "%Y-%m-%d", &local));
  return text;
}

void check_date(const std::string& name, const std::string& date) {
  check(is_date(date), name, " is \"", printable(date),
        "\", must be a date as YYYY-MM-DD, such as 2025-03-09");
}

std::string formatted_date(const std::string& date, const std::string& format) {
  constexpr size_t kLongestFormat = 1000;
  check(format.size() <= kLongestFormat, "the format of strftime_now() has more than ", kLongestFormat,
        " bytes");
  check_date("the date", date);
  std::tm time{};
  strptime(date.c_str(), "%Y-%m-%d", &time);
  const std::string with_end = for_c(format) + ' ';  // strftime returns 0 for an empty result too
  std::string text(256 + 16 * with_end.size(), '\0');
  text.resize(std::strftime(text.data(), text.size(), with_end.c_str(), &time));
  check(!text.empty(), "strftime_now() cannot format the date as \"", format, '"');
  text.pop_back();
  return text;
}

}  // namespace flatshard
