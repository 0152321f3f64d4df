#pragma once
// The date that templates print with strftime_now(), as YYYY-MM-DD. A rendering depends on this date, not on
// the clock. The time of day is midnight.

#include <string>

namespace flatshard {

// Today's date in the local time zone.
std::string todays_date();

// Throws an Error unless the date has the form YYYY-MM-DD. The Error begins with `name`, the name of the
// value.
void check_date(const std::string& name, const std::string& date);

// Prints the date like Python's datetime.strftime(), with English names.
std::string formatted_date(const std::string& date, const std::string& format);

}  // namespace flatshard
