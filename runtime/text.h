#pragma once
// Formatted quantities with three significant digits, and byte sizes parsed from settings.

#include <cstdint>
#include <string>
#include <vector>

namespace flatshard {

// The number with separators: 12,345,678.
std::string with_commas(int64_t n);
// "1 rank", "12,345 ranks": the count and its noun.
std::string counted(int64_t n, const std::string& noun);
// The value with this many decimals: 3.142.
std::string fixed(double value, int decimals);
// A size: 14.2 MiB, 512 B. All sizes that programs print have this format.
std::string human_bytes(int64_t bytes);
// A count: 1.23k, 12.3M, 456. At most 5 characters from 1 to 10^15.
std::string human_count(double value);
// The time of a step: 12.3 ms, 1.23 s. At most 7 characters from a microsecond to 1000 s.
std::string human_seconds(double seconds);
// The time of a run: 1:05, 1:05:33, 12h 05m, 12d 03h. At most 7 characters up to 100 days.
std::string human_duration(double seconds);
// The words, with the separator between two.
std::string joined(const std::vector<std::string>& words, const std::string& separator);
// Ascending numbers with runs shortened: 0-3, 7.
std::string ranges(const std::vector<int>& numbers);

// Parses a byte size such as 1000, 5GB (a power of 1000) or 5GiB (of 1024). An Error names the key.
int64_t parse_bytes(const std::string& key, const std::string& text);

// The text on one line, safe for a terminal: control characters are replaced by spaces.
std::string printable(std::string text);

}  // namespace flatshard
