package chaos

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var (
	chaosDuration = flag.Duration("chaos.duration", 0, "go on with random faults for so long; 0: each fault once")
	chaosSeed     = flag.Uint64("chaos.seed", 0, "the random choices of another run; 0: new ones")
	chaosTable    = flag.String("chaos.table", "", "write the table of results to this file, as Markdown")
)

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		if err := work(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	if flag.Lookup("test.parallel").Value.String() == fmt.Sprint(runtime.GOMAXPROCS(0)) {
		flag.Set("test.parallel", fmt.Sprint(max(4, runtime.GOMAXPROCS(0)))) // rows mostly wait
	}
	if *chaosSeed == 0 {
		*chaosSeed = uint64(time.Now().UnixNano())
	}
	// A proxy that is closed while a link has data under way leaves it to its fate.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"))
}
