package up

import (
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

// thisMachine looks at the memory of the machine, or at a smaller limit of the control group it runs in.
func thisMachine() machine {
	m := machine{cpus: runtime.NumCPU()}
	var info syscall.Sysinfo_t
	if syscall.Sysinfo(&info) == nil {
		m.memory = uint64(info.Totalram) * uint64(info.Unit)
	}
	if limit := groupLimit("/proc/self/cgroup", "/sys/fs/cgroup"); limit > 0 && (m.memory == 0 || limit < m.memory) {
		m.memory = limit
	}
	return m
}

// groupLimit is the smallest memory limit of the control group and of those above it, in bytes; 0: none. In a
// container the group's own path may not be visible: then the root of what is visible holds its limit.
func groupLimit(self, root string) uint64 {
	text, err := os.ReadFile(self)
	if err != nil {
		return 0
	}
	var limit uint64
	look := func(file string) {
		text, err := os.ReadFile(file)
		if err != nil {
			return
		}
		n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64) // "max" is no number, and no limit
		if err == nil && n > 0 && n < 1<<60 && (limit == 0 || n < limit) {
			limit = n
		}
	}
	for _, line := range strings.Split(string(text), "\n") {
		parts := strings.SplitN(line, ":", 3) // hierarchy:controllers:path
		if len(parts) != 3 {
			continue
		}
		base, name := root, "memory.max"
		if parts[1] == "memory" {
			base, name = filepath.Join(root, "memory"), "memory.limit_in_bytes"
		} else if parts[1] != "" {
			continue
		}
		for path := filepath.Join("/", parts[2]); ; path = filepath.Dir(path) {
			look(filepath.Join(base, path, name))
			if path == "/" {
				break
			}
		}
	}
	return limit
}

// withParent lets the kernel kill a child when the thread that started it ends, and keeps it out of the terminal's
// foreground group, so that Ctrl-C reaches only us and the nodes are stopped in order.
func withParent(ownGroup bool) *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: ownGroup}
}

// lock takes the folder for this process until it ends.
func lock(file *os.File) error {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
}
