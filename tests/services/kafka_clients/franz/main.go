// The franz-go client as a program for tests: see tests/services/kafka_clients/franz_go.py.
//
//	franz-reader read  BOOTSTRAP ISOLATION TOPIC:PARTITION…    records from the start to the end that the server names
//	franz-reader group BOOTSTRAP ISOLATION GROUP TOPIC         records of a member, until the standard input ends
//
// ISOLATION is read_committed or read_uncommitted. Each line of the output is a JSON object: a record in the form of the
// golden oracles, with topic and partition, or {"assigned": [partitions]}, {"revoked": […]} and {"committed": true}.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	deadline = 60 * time.Second
	// The last batches below the end may have nothing that a consumer of committed records is given.
	idle = time.Second
)

type partition struct {
	topic  string
	number int32
}

type header [2]any

type record struct {
	Topic         string   `json:"topic"`
	Partition     int32    `json:"partition"`
	Offset        int64    `json:"offset"`
	Timestamp     int64    `json:"timestamp"`
	TimestampType string   `json:"timestampType"`
	LeaderEpoch   int32    `json:"leaderEpoch"`
	Key           []byte   `json:"key"`
	Value         []byte   `json:"value"`
	Headers       []header `json:"headers"`
}

var output = bufio.NewWriter(os.Stdout)

func main() {
	arguments := os.Args[1:]
	if len(arguments) < 4 {
		fail("see the source for the arguments")
	}
	isolation := kgo.ReadUncommitted()
	if arguments[2] == "read_committed" {
		isolation = kgo.ReadCommitted()
	}
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(arguments[1], ",")...),
		kgo.FetchIsolationLevel(isolation),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.WithLogger(kgo.BasicLogger(os.Stderr, kgo.LogLevelWarn, nil)),
	}
	switch arguments[0] {
	case "read":
		read(options, arguments[2], parsed(arguments[3:]))
	case "group":
		consume(options, arguments[3], arguments[4])
	default:
		fail("unknown command " + arguments[0])
	}
}

func read(options []kgo.Opt, isolation string, partitions []partition) {
	starts := map[string]map[int32]kgo.Offset{}
	for _, each := range partitions {
		if starts[each.topic] == nil {
			starts[each.topic] = map[int32]kgo.Offset{}
		}
		starts[each.topic][each.number] = kgo.NewOffset().AtStart()
	}
	// With control records the end of most logs is a record that the client is given.
	client, err := kgo.NewClient(append(options, kgo.ConsumePartitions(starts), kgo.KeepControlRecords())...)
	check(err)
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	unread := ends(ctx, client, isolation, partitions)
	for len(unread) > 0 && ctx.Err() == nil {
		waiting, stop := context.WithTimeout(ctx, idle)
		fetches := client.PollFetches(waiting)
		stop()
		isIdle := ctx.Err() == nil && waiting.Err() != nil && fetches.NumRecords() == 0
		if isIdle && isolation == "read_committed" {
			break
		}
		refuse(fetches)
		fetches.EachRecord(func(each *kgo.Record) {
			write(each)
			place := partition{each.Topic, each.Partition}
			if each.Offset+1 >= unread[place] {
				delete(unread, place)
			}
		})
	}
	check(ctx.Err())
	check(output.Flush())
}

// Returns the end of each partition that has records.
func ends(ctx context.Context, client *kgo.Client, isolation string, partitions []partition) map[partition]int64 {
	found := map[partition]int64{}
	for _, each := range partitions {
		found[each] = listed(ctx, client, isolation, each, -1)
		if found[each] <= listed(ctx, client, isolation, each, -2) {
			delete(found, each)
		}
	}
	return found
}

// Returns an offset that the server lists. It may answer that it does not know the offset now, as in an election.
func listed(ctx context.Context, client *kgo.Client, isolation string, wanted partition, timestamp int64) int64 {
	for {
		offset, err := asked(ctx, client, isolation, wanted, timestamp)
		if err == nil {
			return offset
		}
		if !kerr.IsRetriable(err) {
			check(err)
		}
		check(ctx.Err())
		time.Sleep(100 * time.Millisecond)
	}
}

func asked(
	ctx context.Context, client *kgo.Client, isolation string, wanted partition, timestamp int64,
) (int64, error) {
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = -1
	if isolation == "read_committed" {
		request.IsolationLevel = 1
	}
	topic, asked := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
	topic.Topic, asked.Partition, asked.Timestamp = wanted.topic, wanted.number, timestamp
	topic.Partitions = append(topic.Partitions, asked)
	request.Topics = append(request.Topics, topic)
	for _, shard := range client.RequestSharded(ctx, request) {
		check(shard.Err)
		for _, topic := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, answer := range topic.Partitions {
				return answer.Offset, kerr.ErrorForCode(answer.ErrorCode)
			}
		}
	}
	fail("the end of " + wanted.topic + " was not listed")
	return 0, nil
}

func consume(options []kgo.Opt, group string, topic string) {
	client, err := kgo.NewClient(append(options,
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.Balancers(kgo.RangeBalancer()),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(300*time.Millisecond),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, all map[string][]int32) { tell("assigned", all[topic]) }),
		kgo.OnPartitionsRevoked(func(_ context.Context, _ *kgo.Client, all map[string][]int32) { tell("revoked", all[topic]) }),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, all map[string][]int32) { tell("revoked", all[topic]) }),
	)...)
	check(err)
	ctx, stop := context.WithCancel(context.Background())
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		stop()
	}()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		fetches.EachError(func(_ string, _ int32, err error) {
			if ctx.Err() == nil {
				fmt.Fprintln(os.Stderr, err)
			}
		})
		if fetches.NumRecords() > 0 {
			commit(client, fetches)
		}
		client.AllowRebalance()
	}
	client.LeaveGroup()
	client.Close()
	check(output.Flush())
}

// Prints records when their commit has been answered: another member continues behind them.
func commit(client *kgo.Client, fetches kgo.Fetches) {
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	if err := client.CommitRecords(ctx, fetches.Records()...); err != nil {
		fmt.Fprintln(os.Stderr, "commit:", err)
	}
	fetches.EachRecord(write)
	tell("committed", true)
}

func write(each *kgo.Record) {
	if each.Attrs.IsControl() {
		return
	}
	kind := "CreateTime"
	if each.Attrs.TimestampType() == 1 {
		kind = "LogAppendTime"
	}
	headers := []header{}
	for _, one := range each.Headers {
		headers = append(headers, header{one.Key, one.Value})
	}
	line(record{
		each.Topic, each.Partition, each.Offset, each.Timestamp.UnixMilli(), kind, each.LeaderEpoch,
		each.Key, each.Value, headers,
	})
}

func tell(what string, value any) {
	line(map[string]any{what: value})
	check(output.Flush())
}

func line(value any) {
	encoded, err := json.Marshal(value)
	check(err)
	_, err = output.Write(append(encoded, '\n'))
	check(err)
}

func parsed(arguments []string) []partition {
	found := []partition{}
	for _, argument := range arguments {
		at := strings.LastIndex(argument, ":")
		number, err := strconv.ParseInt(argument[at+1:], 10, 32)
		check(err)
		found = append(found, partition{argument[:at], int32(number)})
	}
	return found
}

func refuse(fetches kgo.Fetches) {
	for _, each := range fetches.Errors() {
		if each.Err != context.DeadlineExceeded {
			check(fmt.Errorf("%s-%d: %w", each.Topic, each.Partition, each.Err))
		}
	}
}

func check(err error) {
	if err != nil {
		fail(err.Error())
	}
}

func fail(reason string) {
	fmt.Fprintln(os.Stderr, reason)
	os.Exit(1)
}
