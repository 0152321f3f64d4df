#pragma once
// The network interfaces of this host, printed to help find a slow or missing link.

#include <string>

namespace flatshard {

// A text such as "eth0 10.0.0.1 (25 Gb/s), ib0 10.1.0.1 (no link), mlx5_0 200 Gb/sec (4X HDR)": the
// interfaces with an address, except the loopback, and the InfiniBand devices. "loopback only" if there are
// none.
std::string network_interfaces();

}  // namespace flatshard
