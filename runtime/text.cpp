#include "runtime/text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <iomanip>
#include <sstream>

#include "runtime/check.h"

namespace flatshard {
namespace {

// Three significant digits, without a fraction from 100 on: 1.23, 12.3, 123, 1234.
std::string three_digits(double value) {
  const double size = std::abs(value);
  char text[64];
  // Beyond these bounds, rounding would produce a fourth digit: 9.995 prints as 10.0.
  std::snprintf(text, sizeof text, "%.*f", size < 9.995 ? 2 : size < 99.95 ? 1 : 0, value);
  return text;
}

constexpr double kNextUnit = 999.5;  // larger values would print as 1000

}  // namespace

std::string with_commas(int64_t n) {
  const std::string digits = str(n);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool begins_group = (digits.size() - i) % 3 == 0;
    if (i > 0 && begins_group && digits[i - 1] != '-') text += ',';
    text += digits[i];
  }
  return text;
}

std::string counted(int64_t n, const std::string& noun) {
  return str(with_commas(n), ' ', noun, n == 1 ? "" : "s");
}

std::string joined(const std::vector<std::string>& words, const std::string& separator) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i) text += (i == 0 ? "" : separator) + words[i];
  return text;
}

std::string ranges(const std::vector<int>& numbers) {
  std::string text;
  for (size_t begin = 0, end = 0; begin < numbers.size(); begin = end) {
    for (end = begin + 1; end < numbers.size() && numbers[end] == numbers[end - 1] + 1;) ++end;
    text += str(text.empty() ? "" : ", ", numbers[begin]);
    if (end - begin > 1) text += str('-', numbers[end - 1]);
  }
  return text;
}

std::string fixed(double value, int decimals) {
  if (std::isnan(value)) return "nan";  // C would also print a NaN's sign
  char text[400];                       // the largest double has 309 digits
  std::snprintf(text, sizeof text, "%.*f", decimals, value);
  return text;
}

std::string human_bytes(int64_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 1024 && unit < 4) value /= 1024, ++unit;
  std::ostringstream out;
  out << std::fixed << std::setprecision(unit == 0 ? 0 : value < 10 ? 2 : 1) << value << ' ' << kUnits[unit];
  return std::move(out).str();
}

std::string human_count(double value) {
  constexpr const char* kSuffixes[] = {"", "k", "M", "G", "T"};
  int unit = 0;
  while (std::abs(value) >= kNextUnit && unit < 4) value /= 1000, ++unit;
  return three_digits(value) + kSuffixes[unit];
}

std::string human_seconds(double seconds) {
  constexpr const char* kUnits[] = {" us", " ms", " s"};
  double value = seconds * 1e6;
  int unit = 0;
  while (std::abs(value) >= kNextUnit && unit < 2) value /= 1000, ++unit;
  return three_digits(value) + kUnits[unit];
}

std::string human_duration(double seconds) {
  if (!(seconds >= 0 && seconds < 1e15)) return "?";
  const int64_t s = std::llround(seconds), minutes = s / 60, hours = s / 3600, days = s / 86400;
  char text[64];
  if (hours < 1)
    std::snprintf(text, sizeof text, "%d:%02d", static_cast<int>(minutes), static_cast<int>(s % 60));
  else if (hours < 10)
    std::snprintf(text, sizeof text, "%d:%02d:%02d", static_cast<int>(hours), static_cast<int>(minutes % 60),
                  static_cast<int>(s % 60));
  else if (days < 1)
    std::snprintf(text, sizeof text, "%dh %02dm", static_cast<int>(hours), static_cast<int>(minutes % 60));
  else
    return str(days, days < 100 ? str("d ", hours % 24 < 10 ? "0" : "", hours % 24, 'h') : " days");
  return text;
}

int64_t parse_bytes(const std::string& key, const std::string& text) {
  int64_t bytes = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, bytes);
  const std::string unit(stop, end);
  bool known = unit.empty() || unit == "B";
  for (const int64_t base : {1000, 1024}) {
    int64_t scaled = bytes;
    for (const char prefix : {'K', 'M', 'G', 'T'}) {
      if (known || __builtin_mul_overflow(scaled, base, &scaled)) break;
      known = unit == prefix + std::string(base == 1000 ? "B" : "iB");
      if (known) bytes = scaled;
    }
  }
  check(error == std::errc{} && known && bytes > 0, key, " is \"", text,
        "\", must be a positive number of B, KB, MB, GB or TB (powers of 1000), or of KiB, MiB, GiB or TiB, "
        "such as 5GB");
  return bytes;
}

std::string printable(std::string text) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  for (size_t i = 0; i < text.size(); ++i) {
    if (byte(i) < 0x20 || byte(i) == 0x7f) text[i] = ' ';
    if (byte(i) == 0xc2 && byte(i + 1) >= 0x80 && byte(i + 1) < 0xa0)
      text[i] = text[i + 1] = ' ';  // C1 control characters; U+009B acts as ESC [
  }
  return text;
}

}  // namespace flatshard
