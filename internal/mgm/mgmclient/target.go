package mgmclient

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
)

// DefaultPort is where a management server listens if nobody says otherwise.
const DefaultPort = 1186

// Environment is the variable that holds the connect string where no option gives one.
const Environment = "NDB_CONNECTSTRING"

// Target is what a connect string says.
type Target struct {
	NodeID int      // the node id to ask for, 0: any
	Bind   string   // host:port to connect from, empty: any
	Addrs  []string // host:port of each management server, in the order to try
}

// ParseTarget reads [nodeid=N,][bind-address=HOST[:PORT],]HOST[:PORT][,HOST[:PORT]]…; empty is localhost:1186.
func ParseTarget(text string) (Target, error) {
	var t Target
	wrong := func(part, reason string) (Target, error) {
		return Target{}, fmt.Errorf("connect string %q: %q %s: use [nodeid=N,]host[:port][,host[:port]]", text, part, reason)
	}
	for part := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' || r == ';' }) {
		part = strings.TrimSpace(part)
		name, value, isSetting := strings.Cut(part, "=")
		switch {
		case part == "":
		case !isSetting:
			addr, err := hostPort(part, DefaultPort)
			if err != nil {
				return wrong(part, err.Error())
			}
			t.Addrs = append(t.Addrs, addr)
		case strings.EqualFold(name, "nodeid"):
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 || n > 255 {
				return wrong(part, "has no node id from 1 to 255")
			}
			t.NodeID = n
		case strings.EqualFold(name, "bind-address"):
			addr, err := hostPort(value, 0)
			if err != nil {
				return wrong(part, err.Error())
			}
			t.Bind = addr
		default:
			return wrong(part, "is no setting")
		}
	}
	if t.Addrs == nil {
		t.Addrs = []string{net.JoinHostPort("localhost", strconv.Itoa(DefaultPort))}
	}
	return t, nil
}

// hostPort completes host, host:port, [v6] and [v6]:port.
func hostPort(text string, port int) (string, error) {
	host := text
	switch {
	case strings.HasPrefix(text, "[") && strings.HasSuffix(text, "]"):
		host = text[1 : len(text)-1]
	case strings.Count(text, ":") == 1 || strings.HasPrefix(text, "["):
		h, p, err := net.SplitHostPort(text)
		if err != nil {
			return "", errors.New("is no host:port")
		}
		n, err := strconv.Atoi(p)
		if err != nil || n < 1 || n > 65535 {
			return "", errors.New("has no port from 1 to 65535")
		}
		host, port = h, n
	}
	if host == "" {
		return "", errors.New("has no host")
	}
	return net.JoinHostPort(host, strconv.Itoa(port)), nil
}

// ConnectString chooses what an option gives, else the environment's, else the default.
func ConnectString(option string) string {
	if option != "" {
		return option
	}
	return os.Getenv(Environment)
}
