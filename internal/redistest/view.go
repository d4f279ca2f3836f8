package redistest

import (
	"strconv"
	"strings"
)

// view is how one node of a cluster sees all of them: the lines of CLUSTER NODES.
type view struct {
	nodes []seen
}

// seen is one node in a view.
type seen struct {
	id, flags, masterID string
	port                int
	epoch               int
	slots               []string // such as 0-5460, or 93 alone, or [93->-id] for one that migrates
}

func (s *Server) view() (view, error) {
	text, err := s.ask("CLUSTER", "NODES").Text()
	if err != nil {
		return view{}, err
	}
	var v view
	for line := range strings.Lines(text) {
		v.nodes = append(v.nodes, parseNode(strings.Fields(line)))
	}
	return v, nil
}

// parseNode reads: id host:port@bus,name flags master ping pong epoch link slots...
func parseNode(f []string) seen {
	host, _, _ := strings.Cut(f[1], "@")
	port, _ := strconv.Atoi(host[strings.LastIndex(host, ":")+1:])
	epoch, _ := strconv.Atoi(f[6])
	return seen{id: f[0], port: port, flags: f[2], masterID: f[3], epoch: epoch, slots: f[8:]}
}

// self is the node whose view it is. There always is one.
func (v view) self() seen {
	for _, n := range v.nodes {
		if strings.Contains(n.flags, "myself") {
			return n
		}
	}
	return seen{}
}

// owner is the port of the node that serves slot, or 0.
func (v view) owner(slot int) int {
	for _, n := range v.nodes {
		if n.master() && n.serves(slot) {
			return n.port
		}
	}
	return 0
}

func (n seen) master() bool { return strings.Contains(n.flags, "master") }

func (n seen) serves(slot int) bool {
	for _, r := range n.slots {
		if strings.HasPrefix(r, "[") {
			continue
		}
		low, high, isRange := strings.Cut(r, "-")
		if !isRange {
			high = low
		}
		from, _ := strconv.Atoi(low)
		to, _ := strconv.Atoi(high)
		if from <= slot && slot <= to {
			return true
		}
	}
	return false
}
