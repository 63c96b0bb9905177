package config

import (
	"strconv"
	"strings"
)

// DefaultPort is the port of a management server where none is given.
const DefaultPort = defaultMgmdPort

// Endpoint is a host name or address and a TCP port.
type Endpoint struct {
	Host string
	Port int // 0 where none was given and there is no default (a bind address)
}

// String writes HOST:PORT, or HOST alone without a port; IPv6 addresses stand in brackets.
func (e Endpoint) String() string {
	host := e.Host
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	if e.Port == 0 {
		return host
	}
	return host + ":" + strconv.Itoa(e.Port)
}

// ConnectString says which management servers to ask for the configuration, and as whom.
type ConnectString struct {
	NodeID  int        // 0: any id will do
	Bind    Endpoint   // local address of links; empty: the system's choice. An entry's own one is in Binds
	Servers []Endpoint // in the order in which to try them; at least one
	Binds   []Endpoint // local address for each server, empty where there is none
}

// String writes the connect string so that it reads back.
func (c ConnectString) String() string {
	var parts []string
	if c.NodeID != 0 {
		parts = append(parts, "nodeid="+strconv.Itoa(c.NodeID))
	}
	if c.Bind.Host != "" {
		parts = append(parts, "bind-address="+c.Bind.String())
	}
	for i, s := range c.Servers {
		parts = append(parts, s.String())
		if i < len(c.Binds) && c.Binds[i].Host != "" && c.Binds[i] != c.Bind {
			parts = append(parts, "bind-address="+c.Binds[i].String())
		}
	}
	return strings.Join(parts, ",")
}

// ParseConnectString reads
//
//	[nodeid=N,][bind-address=HOST[:PORT],]HOST[:PORT][,HOST[:PORT]]…
//
// Entries may also stand between semicolons or blanks, as NDB allows, and a host may be written host=HOST:PORT. A
// bind-address before the first host is for all; one after a host is for this host. Without a host it is localhost,
// without a port 1186.
func ParseConnectString(s string) (ConnectString, error) {
	var c ConnectString
	for _, entry := range strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ';' || r == ' ' || r == '\t' }) {
		key, text, isPair := strings.Cut(entry, "=")
		if !isPair {
			key, text = "host", entry
		}
		switch fold(key) {
		case "nodeid":
			id, ok := parseDigits(text, maxNodeID)
			if !ok || id == 0 {
				return c, connectError("has nodeid=" + clip(text) + ": write a node id of 1 to " + strconv.Itoa(maxNodeID))
			}
			if c.NodeID != 0 {
				return c, connectError("has nodeid twice: write it once, at the beginning")
			}
			c.NodeID = id
		case "bind-address":
			e, ok := parseEndpoint(text, 0)
			if !ok {
				return c, connectError("has bind-address=" + clip(text) + ": write HOST or HOST:PORT")
			}
			if n := len(c.Servers); n > 0 {
				c.Binds[n-1] = e
			} else {
				c.Bind = e
			}
		case "host":
			e, ok := parseEndpoint(text, DefaultPort)
			if !ok {
				return c, connectError("has the host " + clip(text) + ": write HOST or HOST:PORT, with a port of 1 to 65535")
			}
			c.Servers, c.Binds = append(c.Servers, e), append(c.Binds, c.Bind)
		default:
			return c, connectError("has " + clip(key+"=") + ": write nodeid=N, bind-address=HOST or HOST:PORT")
		}
	}
	if len(c.Servers) == 0 {
		c.Servers, c.Binds = []Endpoint{{localhost, DefaultPort}}, []Endpoint{c.Bind}
	}
	return c, nil
}

// connectError is an error of a connect string; text holds what is wrong and, after a colon, what to do.
type connectError string

func (e connectError) Error() string { return "the connect string " + string(e) }

// parseEndpoint reads HOST, HOST:PORT or, with an IPv6 address, [HOST]:PORT.
func parseEndpoint(text string, port int) (Endpoint, bool) {
	host, portText := text, ""
	if strings.HasPrefix(text, "[") {
		end := strings.IndexByte(text, ']')
		if end < 0 {
			return Endpoint{}, false
		}
		host, portText = text[1:end], text[end+1:]
		if portText != "" && portText[0] != ':' {
			return Endpoint{}, false
		}
		portText = strings.TrimPrefix(portText, ":")
		if portText == "" && strings.HasSuffix(text, ":") {
			return Endpoint{}, false
		}
	} else if strings.Count(text, ":") == 1 {
		host, portText, _ = strings.Cut(text, ":")
		if portText == "" {
			return Endpoint{}, false
		}
	}
	if portText != "" {
		n, ok := parseDigits(portText, 65535)
		if !ok || n == 0 {
			return Endpoint{}, false
		}
		port = n
	}
	return Endpoint{host, port}, host != "" && isHostName(host)
}
