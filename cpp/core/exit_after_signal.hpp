// Ends a process whose Python code never yields: then no signal handler of Python runs.
#pragma once

#ifndef _WIN32

#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <thread>

namespace ltls {

// Waits in a thread for SIGTERM or SIGINT, whose numbers Python's C code writes to the other end of
// a pipe. The process exits so many seconds later, unless the other end is closed before.
inline void exit_after_signal(int pipe, double seconds) {
    using Clock = std::chrono::steady_clock;
    const auto allowed =
        std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
    std::thread([pipe, allowed] {
        constexpr int often = 100;  // milliseconds
        Clock::time_point end = Clock::time_point::max();
        while (Clock::now() < end) {
            pollfd waiting{pipe, POLLIN, 0};
            if (poll(&waiting, 1, end == Clock::time_point::max() ? -1 : often) <= 0) continue;
            unsigned char number = 0;
            const auto n = read(pipe, &number, 1);
            if (n == 0 || (n < 0 && errno != EINTR)) {
                close(pipe);
                return;
            }
            if (n == 1 && (number == SIGTERM || number == SIGINT) &&
                end == Clock::time_point::max())
                end = Clock::now() + allowed;
        }
        _exit(0);
    }).detach();
}

}  // namespace ltls

#endif
