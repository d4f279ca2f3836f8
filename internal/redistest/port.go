package redistest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
)

// Ports are taken below the range from which systems serve outgoing connections, or one of those might occupy a port
// while its server is down. A cluster's nodes talk on port + 10000, which has to be free as well.
const (
	firstPort = 12000
	blockSize = 100
	blocks    = 80
	busOffset = 10000
)

// Packages are tested in processes of their own, at the same time. So that they do not race for ports, each process
// claims a block of them by listening on the block's first port for as long as it lives.
var ports struct {
	sync.Mutex
	claims []net.Listener
	free   []int // taken at the front and put back at the end, so that a port rests between two servers
}

func takePort() (int, error) {
	ports.Lock()
	defer ports.Unlock()
	for {
		if len(ports.free) == 0 {
			if err := claimBlock(); err != nil {
				return 0, err
			}
		}
		port := ports.free[0]
		ports.free = ports.free[1:]
		if listens(port) && listens(port+busOffset) { // else it is some stranger's
			return port, nil
		}
	}
}

func returnPort(port int) {
	ports.Lock()
	defer ports.Unlock()
	ports.free = append(ports.free, port)
}

func claimBlock() error {
	offset := rand.IntN(blocks)
	for i := range blocks {
		first := firstPort + (offset+i)%blocks*blockSize
		claim, err := net.Listen("tcp", loopback(first))
		if err != nil {
			continue
		}
		ports.claims = append(ports.claims, claim)
		for port := first + 1; port < first+blockSize; port++ {
			ports.free = append(ports.free, port)
		}
		return nil
	}
	return errors.New("redistest: no free ports")
}

func listens(port int) bool {
	l, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return false
	}
	return l.Close() == nil
}

func loopback(port int) string {
	return fmt.Sprintf("127.0.0.1:%d", port)
}
